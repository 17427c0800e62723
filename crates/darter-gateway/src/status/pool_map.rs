//! The map of a pool: the holder of each block of each memory node, in a bounded number of cells.
//!
//! A cell is one block, or several neighbours if a pool has more blocks than the map has cells. A
//! cell of several blocks shows the state of most of them.

use darter::report::{AllocKind, BlockHolder, BlockRun, NodeUsage};
use serde_json::{Value, json};

/// Cells of all maps together.
const CELLS_MAX: u64 = 4096;
/// Fewest cells of one map, regardless of the number of nodes.
const NODE_CELLS_MIN: u64 = 16;

/// Returns the map of each node: the blocks of a cell, and runs of equal cells, each with its
/// holder (a member's slot or the name of a state), its kind of objects and its number of cells.
pub(super) fn maps(nodes: &[NodeUsage]) -> Vec<Value> {
    let cells_max = (CELLS_MAX / (nodes.len() as u64).max(1)).max(NODE_CELLS_MIN);
    let maps = nodes.iter().map(|node| {
        let cell_blocks = node.blocks.div_ceil(cells_max).max(1);
        let runs = cells(&node.runs, cell_blocks);
        let runs = runs.iter().map(|run| json!([holder(run.holder), kind(run.kind), run.blocks]));
        json!({ "cell_blocks": cell_blocks, "runs": runs.collect::<Vec<_>>() })
    });
    maps.collect()
}

fn holder(holder: BlockHolder) -> Value {
    match holder {
        BlockHolder::Member(slot) => json!(slot),
        BlockHolder::Free => json!("free"),
        BlockHolder::Closed => json!("closed"),
        BlockHolder::Dead => json!("dead"),
        BlockHolder::Sweeping => json!("sweeping"),
        BlockHolder::Damaged => json!("damaged"),
    }
}

fn kind(kind: Option<AllocKind>) -> Option<&'static str> {
    kind.map(|kind| match kind {
        AllocKind::Inner => "inner nodes",
        AllocKind::Leaf => "leaves",
    })
}

/// Returns runs of cells for runs of blocks; the last cell may be smaller.
fn cells(runs: &[BlockRun], cell_blocks: u64) -> Vec<BlockRun> {
    let mut cells: Vec<BlockRun> = Vec::new();
    let mut push = |run: BlockRun| match cells.last_mut() {
        Some(last) if last.holder == run.holder && last.kind == run.kind => last.blocks += run.blocks,
        _ => cells.push(run),
    };
    // The contents of the cell that is not full yet, without repetitions.
    let mut open: Vec<BlockRun> = Vec::new();
    for &run in runs {
        let mut left = run.blocks;
        while left > 0 {
            let filled: u64 = open.iter().map(|part| part.blocks).sum();
            if filled == 0 && left >= cell_blocks {
                push(BlockRun { blocks: left / cell_blocks, ..run });
                left %= cell_blocks;
                continue;
            }
            let taken = left.min(cell_blocks - filled);
            left -= taken;
            match open.iter_mut().find(|part| part.holder == run.holder && part.kind == run.kind) {
                Some(part) => part.blocks += taken,
                None => open.push(BlockRun { blocks: taken, ..run }),
            }
            if filled + taken == cell_blocks {
                most(&open).into_iter().for_each(&mut push);
                open.clear();
            }
        }
    }
    most(&open).into_iter().for_each(push);
    cells
}

/// Returns a cell in the state of most of its blocks.
fn most(parts: &[BlockRun]) -> Option<BlockRun> {
    parts.iter().max_by_key(|part| part.blocks).map(|part| BlockRun { blocks: 1, ..*part })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(holder: BlockHolder, blocks: u64) -> BlockRun {
        let kind = (holder != BlockHolder::Free).then_some(AllocKind::Leaf);
        BlockRun { holder, kind, blocks }
    }

    #[test]
    fn a_cell_is_a_block_or_what_most_of_its_blocks_are() {
        let (mine, free) = (BlockHolder::Member(3), BlockHolder::Free);
        let runs = [run(mine, 3), run(free, 9), run(mine, 1), run(free, 1), run(mine, 1)];
        assert_eq!(cells(&runs, 1), runs);
        assert_eq!(cells(&runs, 4), [run(mine, 1), run(free, 2), run(mine, 1)]);
        assert_eq!(cells(&runs, 100), [run(free, 1)]);
        assert_eq!(cells(&[], 4), []);
    }

    #[test]
    fn maps_are_bounded_whatever_the_pool() {
        let blocks = 1_000_001;
        let runs = (0..blocks)
            .map(|at| run(if at % 2 == 0 { BlockHolder::Free } else { BlockHolder::Dead }, 1))
            .collect();
        let node = NodeUsage { blocks, runs, ..NodeUsage::default() };
        let map = &maps(&[node])[0];
        let shown: u64 = map["runs"].as_array().unwrap().iter().map(|run| run[2].as_u64().unwrap()).sum();
        assert!(shown <= CELLS_MAX, "{shown}");
        assert_eq!(shown, blocks.div_ceil(map["cell_blocks"].as_u64().unwrap()));
    }
}
