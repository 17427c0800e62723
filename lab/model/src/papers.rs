//! The model compared with figures that the papers measured, with clients that post the verbs that
//! the papers state for their indexes.

use super::*;
use darter_fabric::{Batch, Endpoint, Fabric, GlobalAddr, OpKind};
use std::fmt::Write;

/// Returns a word that differs between clients and rounds, aligned to 64 bytes, in the first 256
/// MiB of a node.
fn somewhere(seat: Seat, round: u64, nodes: u64) -> GlobalAddr {
    let number = (seat.task as u64 * 1_000_003 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    GlobalAddr::new((number % nodes) as u8, (number >> 40) % (1 << 22) * 64)
}

/// Every client performs `ops` operations of `batches` batches each; returns operations per second
/// and the mean latency in nanoseconds.
fn run(text: &str, ops: u64, batches: usize, fill: impl Fn(&mut Batch, usize, Seat, u64)) -> (f64, f64) {
    let model = Model::new(&text.parse().unwrap()).unwrap();
    let client = |seat: Seat| {
        let (fabric, fill) = (model.compute_node(seat.compute_node), &fill);
        async move {
            let mut endpoint = fabric.endpoint().unwrap();
            let begin = fabric.now_ns();
            for op in 0..ops {
                endpoint.begin(OpKind::Get);
                for step in 0..batches {
                    let mut batch = endpoint.batch();
                    fill(&mut batch, step, seat, op * batches as u64 + step as u64);
                    let done = endpoint.submit(batch).await.unwrap();
                    endpoint.recycle(done);
                }
            }
            fabric.now_ns() - begin
        }
    };
    let (report, times) = Cluster::drive(&model, client).unwrap();
    let total = ops * times.len() as u64;
    (report.per_s(total), times.iter().sum::<u64>() as f64 / total as f64)
}

/// Writes of ART on disaggregated memory: five READs of 6.5 KB in all, with the new leaf written at
/// the same time, and a CAS; with a lock before the CAS and an unlocking WRITE after it, on
/// distinct words.
fn art_writes(text: &str, is_locked: bool) -> (f64, f64) {
    let leaf = [7; 16];
    run(text, 60, if is_locked { 8 } else { 6 }, |batch, step, seat, round| {
        let addr = somewhere(seat, round, 3);
        match step {
            0..5 => {
                batch.read(addr, 6500 / 5 / 8);
                if step == 0 {
                    batch.write(somewhere(seat, round + 1, 3), &leaf);
                }
            }
            7 => batch.write(addr, &[0]),
            _ => {
                batch.cas(addr, 0, 0);
            }
        }
    })
}

/// The same without a lock, with 54 writes of 1,000 to one word: the share of the most popular of
/// 60 M keys under Zipf's law with 0.99. A client whose CAS lost retries with the word that it
/// found, or counts its value as overwritten.
fn skewed_writes(is_repeated: bool) -> f64 {
    let model = Model::new(&ModelSpec::preset(Preset::Dart)).unwrap();
    let ops = 60;
    let client = |seat: Seat| {
        let fabric = &model;
        async move {
            let mut endpoint = fabric.compute_node(seat.compute_node).endpoint().unwrap();
            for op in 0..ops {
                let elsewhere = somewhere(seat, op, 3);
                let is_hot = elsewhere.offset() / 64 % 1000 < 54;
                let slot = if is_hot { GlobalAddr::new(0, 1 << 30) } else { elsewhere };
                let mut seen = 0;
                for step in 0..5 {
                    let mut batch = endpoint.batch();
                    let id = batch.read(if step == 4 { slot } else { elsewhere }, 6500 / 5 / 8);
                    if step == 0 {
                        batch.write(elsewhere.plus(2 << 30), &[7; 16]);
                    }
                    seen = endpoint.submit(batch).await.unwrap().words(id)[0];
                }
                loop {
                    let mut batch = endpoint.batch();
                    let id = batch.cas(slot, seen, (seat.task as u64) << 32 | op);
                    let done = endpoint.submit(batch).await.unwrap();
                    if done.swapped(id) || !is_repeated {
                        break;
                    }
                    seen = done.found(id);
                }
            }
        }
    };
    let (report, clients) = Cluster::drive(&model, client).unwrap();
    report.per_s(ops * clients.len() as u64)
}

/// Figures of the papers and of the model, in the unit that the row names.
fn figures() -> Vec<(&'static str, f64, f64)> {
    let (smart, _) = run("preset=smart", 40, 1, |batch, _, seat, round| {
        batch.read(somewhere(seat, round, 2), 2);
    });
    let one_node = "preset=smart,mn=1,shared=0,threads=256,coroutines=1";
    let (small, _) = run(one_node, 200, 1, |batch, _, seat, round| {
        batch.read(somewhere(seat, round, 1), 2);
    });
    let (leaves, _) = run(one_node, 200, 1, |batch, _, seat, round| {
        batch.read(somewhere(seat, round, 1), 3171_usize.div_ceil(8));
    });
    let (many, alone) = ("preset=dart", "preset=dart,threads=1");
    vec![
        ("Mops of small READs on one memory node (SMART, 3.1.2)", 45.0, small / 1e6),
        ("Mops of small READs on two that are compute nodes too (SMART, 5.2)", 90.0, smart / 1e6),
        ("Mops of Sherman's searches, leaves of 3,171 B, on one (SMART, 3.1.2)", 4.17, leaves / 1e6),
        (
            "µs of a write of ART without a lock, one thread (DART, Table 1)",
            12.9,
            art_writes(alone, false).1 / 1e3,
        ),
        ("µs of the same with a lock", 16.8, art_writes(alone, true).1 / 1e3),
        ("Mops of it without a lock, 168 threads, uniform", 5.2, art_writes(many, false).0 / 1e6),
        ("Mops of the same with a lock", 4.7, art_writes(many, true).0 / 1e6),
        (
            "Mops of it without a lock, 168 threads, Zipf 0.99, no lost CAS repeated",
            5.2,
            skewed_writes(false) / 1e6,
        ),
    ]
}

#[test]
fn a_hot_word_collapses_under_clients_that_repeat_lost_cases() {
    let (dropped, repeated) = (skewed_writes(false), skewed_writes(true));
    assert!(repeated < dropped / 4.0, "{repeated} {dropped}");
}

#[test]
fn the_papers_own_figures_come_out() {
    let mut table = String::from("| figure | paper | model |\n|---|---|---|\n");
    for (what, paper, model) in figures() {
        writeln!(table, "| {what} | {paper} | {model:.2} |").unwrap();
        assert!((model / paper - 1.0).abs() < 0.15, "{what}: {model} instead of {paper}");
    }
    let document = include_str!("../../docs/model.md");
    assert!(document.contains(&table), "lab/docs/model.md must contain:\n\n{table}");
}
