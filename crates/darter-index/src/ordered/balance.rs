//! How much an index has on each memory node, and which objects a walk moves to balance that
//! (`docs/pool.md`, "Growing").
//!
//! The share of a memory node is the part of all bytes that its size is of the sizes of all. A node that
//! holds more has a *surplus*, one that holds less has *room*. An object is moved only if it fits into
//! both, so that each move makes the pool more even. So moves come to an end, also if a walk begins
//! again and again.
//!
//! Keys from the whole key range are moved, and not the first ones: a node's objects fall *due* one after
//! the other, in proportion to the bytes that the walk has seen on the node.

/// The fullest memory node of a pool that is even may hold this many hundredths of its share.
const EVEN_PERCENT: u128 = 115;

/// How much an index has on a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeFill {
    /// The memory node.
    pub node: u8,
    /// Bytes of the objects that the index reaches on it.
    pub bytes: u64,
    /// Bytes of its blocks.
    pub capacity: u64,
    /// Bytes of its free blocks.
    pub free: u64,
}

impl NodeFill {
    /// A memory node with `bytes` bytes of objects in `capacity` bytes of blocks, the others of which are
    /// free.
    pub fn new(node: u8, bytes: u64, capacity: u64) -> Self {
        Self { node, bytes, capacity, free: capacity.saturating_sub(bytes) }
    }
}

fn total(fills: &[NodeFill], of: impl Fn(&NodeFill) -> u64) -> u128 {
    fills.iter().map(|fill| u128::from(of(fill))).sum()
}

/// Whether the fullest memory node has at most 1.15 times the mean fill.
pub(crate) fn is_even(fills: &[NodeFill]) -> bool {
    let (bytes, capacity) = (total(fills, |fill| fill.bytes), total(fills, |fill| fill.capacity));
    let is_within = |fill: &NodeFill| {
        u128::from(fill.bytes) * capacity * 100 <= bytes * u128::from(fill.capacity) * EVEN_PERCENT
    };
    fills.iter().all(is_within)
}

/// The fill of the fullest memory node, as a multiple of the mean; 1 if the memory nodes are empty.
pub(crate) fn fullest(fills: &[NodeFill]) -> f64 {
    let mean = total(fills, |fill| fill.bytes) as f64 / total(fills, |fill| fill.capacity) as f64;
    let fill = |fill: &NodeFill| fill.bytes as f64 / fill.capacity as f64 / mean;
    fills.iter().map(fill).filter(|fill| fill.is_finite()).reduce(f64::max).unwrap_or(1.0)
}

/// What one walk is to move, and what is left of that.
#[derive(Clone, Debug)]
pub struct Balance {
    loads: Vec<Load>,
}

/// A memory node.
#[derive(Clone, Debug)]
struct Load {
    node: u8,
    /// Bytes to move away.
    surplus: u64,
    /// Bytes to move here.
    room: u64,
    /// The surplus as a part of all bytes on the node.
    part: f64,
    /// Bytes that are due to be moved; negative if more were moved than the walk has seen reason for.
    due: f64,
    /// Bytes that the current turn has seen on the node, and left there.
    seen: u64,
}

impl Balance {
    /// What has to be moved to make the memory nodes equally full.
    pub fn new(fills: &[NodeFill]) -> Self {
        let (bytes, capacity) = (total(fills, |fill| fill.bytes), total(fills, |fill| fill.capacity));
        let load = |fill: &NodeFill| {
            // Not more than all bytes.
            let share = (bytes * u128::from(fill.capacity) / capacity.max(1)) as u64;
            let surplus = fill.bytes.saturating_sub(share);
            Load {
                node: fill.node,
                surplus,
                room: share.saturating_sub(fill.bytes).min(fill.free),
                part: surplus as f64 / fill.bytes.max(1) as f64,
                // The first object of the walk is due.
                due: 1.0,
                seen: 0,
            }
        };
        Self { loads: fills.iter().map(load).collect() }
    }

    /// Bytes to move.
    pub fn bytes(&self) -> u64 {
        self.loads.iter().map(|load| load.surplus).sum()
    }

    fn load(&mut self, node: u8) -> Option<&mut Load> {
        self.loads.iter_mut().find(|load| load.node == node)
    }

    /// The memory node for an object of `bytes` bytes on `node`; `None` if it stays. If it belongs to an
    /// object on another node, `above`, it follows that if it can. Else it goes where most room is, if it
    /// is due.
    pub(crate) fn goal(&mut self, node: u8, bytes: u64, above: u8) -> Option<u8> {
        let from = self.load(node).filter(|from| from.surplus >= bytes)?;
        let is_due = from.due + from.part * from.seen as f64 > 0.0;
        if above != node && self.load(above).is_some_and(|above| above.room >= bytes) {
            return Some(above);
        }
        let most = self.loads.iter().filter(|load| load.room >= bytes).max_by_key(|load| load.room);
        most.filter(|_| is_due).map(|load| load.node)
    }

    /// Counts an object that is moved.
    pub(crate) fn moved(&mut self, from: u8, to: u8, bytes: u64) {
        if let Some(from) = self.load(from) {
            from.surplus = from.surplus.saturating_sub(bytes);
            from.due -= bytes as f64 * (1.0 - from.part);
        }
        if let Some(to) = self.load(to) {
            to.room = to.room.saturating_sub(bytes);
        }
    }

    /// Counts an object that stays.
    pub(crate) fn stays(&mut self, node: u8, bytes: u64) {
        if let Some(load) = self.load(node) {
            load.seen += bytes;
        }
    }

    /// Ends the moves of this walk.
    pub(crate) fn stop(&mut self) {
        self.loads.iter_mut().for_each(|load| load.room = 0);
    }

    /// Begins a turn, which sees again what the one before has left.
    pub(crate) fn begin_turn(&mut self) {
        self.loads.iter_mut().for_each(|load| load.seen = 0);
    }

    /// Ends the last turn of a step.
    pub(crate) fn end_step(&mut self) {
        for load in &mut self.loads {
            load.due += load.part * load.seen as f64;
            load.seen = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fills(of: &[(u64, u64)]) -> Vec<NodeFill> {
        (0..).zip(of).map(|(node, &(bytes, capacity))| NodeFill::new(node, bytes, capacity)).collect()
    }

    #[test]
    fn shares_are_in_proportion_to_sizes() {
        assert!(is_even(&fills(&[(100, 1000), (200, 2000), (0, 0)])));
        assert!(is_even(&fills(&[(0, 1000), (0, 2000)])));
        assert!(is_even(&fills(&[(115, 1000), (85, 1000)])));
        assert!(!is_even(&fills(&[(116, 1000), (84, 1000)])));
        assert!(!is_even(&fills(&[(100, 1000), (100, 2000)])));
        assert!((fullest(&fills(&[(30, 100), (10, 100)])) - 1.5).abs() < 1e-9);
        assert!((fullest(&fills(&[(0, 100), (0, 100)])) - 1.0).abs() < 1e-9);
        let balance = Balance::new(&fills(&[(300, 1000), (0, 2000)]));
        assert_eq!((balance.bytes(), balance.loads[1].room), (200, 200));
    }

    #[test]
    fn an_object_is_moved_only_if_that_makes_the_nodes_more_even() {
        let mut balance = Balance::new(&fills(&[(300, 1000), (100, 1000)]));
        assert_eq!(balance.goal(0, 101, 0), None);
        assert_eq!(balance.goal(1, 1, 1), None);
        assert_eq!(balance.goal(0, 100, 0), Some(1));
        balance.moved(0, 1, 60);
        assert_eq!(balance.goal(0, 40, 0), None, "it is not due");
        assert_eq!(balance.goal(0, 40, 1), Some(1), "it follows what it belongs to");
        assert_eq!(balance.goal(0, 41, 1), None);
        let mut full = fills(&[(300, 1000), (100, 1000)]);
        full[1].free = 50;
        assert_eq!(Balance::new(&full).goal(0, 60, 0), None, "there is no room");
    }

    /// Objects of one size in the order of a walk: the moved ones are from all parts of it, and a
    /// turn that is repeated counts once.
    #[test]
    fn objects_from_the_whole_walk_are_moved() {
        let mut balance = Balance::new(&fills(&[(4000, 10_000), (4000, 10_000), (0, 10_000)]));
        let mut moved = Vec::new();
        for number in 0..400_usize {
            let (node, mut repeats) = (number as u8 % 2, 2);
            while repeats > 0 {
                balance.begin_turn();
                match balance.goal(node, 20, node) {
                    Some(to) => {
                        balance.moved(node, to, 20);
                        moved.push(number);
                        break;
                    }
                    None => balance.stays(node, 20),
                }
                repeats -= 1;
            }
            balance.end_step();
        }
        assert!((130..=134).contains(&moved.len()), "{}", moved.len());
        assert!(moved.windows(2).all(|two| two[1] - two[0] <= 6), "{moved:?}");
    }
}
