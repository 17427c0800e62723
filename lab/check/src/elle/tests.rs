//! Histories with each anomaly, and histories without any.

use super::{Anomaly, End, Step, Transaction, check, to_edn};

/// A transaction from its interval and its steps, as in `a1:7 p2:8 r1:7,8`: append 7 to list 1, put
/// 8 to list 2, read 7 and 8 in list 1. An end of 0 stands for an unknown one.
fn transaction(client: u32, invoked: u64, returned: u64, steps: &str) -> Transaction {
    let step = |text: &str| {
        let (list, elements) = text[1..].split_once(':').unwrap();
        let list = list.parse().unwrap();
        let mut elements =
            elements.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().unwrap());
        match &text[..1] {
            "a" => Step::Append { list, element: elements.next().unwrap() },
            "p" => Step::Put { list, element: elements.next().unwrap() },
            _ => Step::Read { list, elements: elements.collect() },
        }
    };
    let end = if returned == 0 { End::Unknown } else { End::Committed(returned) };
    Transaction { client, steps: steps.split_whitespace().map(step).collect(), invoked, end }
}

/// Transactions that all overlap.
fn at_once(steps: &[&str]) -> Vec<Transaction> {
    (0..).zip(steps).map(|(client, steps)| transaction(client, 1, 9, steps)).collect()
}

fn aborted(mut one: Transaction) -> Transaction {
    one.end = End::Aborted(9);
    one
}

#[track_caller]
fn finds(history: &[Transaction], expected: &[Anomaly]) {
    let findings = check(history);
    let found: Vec<Anomaly> = findings.iter().map(|finding| finding.anomaly).collect();
    let text = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(found, expected, "{text}");
}

#[test]
fn valid_histories_pass() {
    finds(&[], &[]);
    finds(&at_once(&["r1: a1:1", "r1:1 a1:2 r1:1,2", "r1:1,2 r2:", "a2:5 a2:6", "r2:5,6"]), &[]);
    // Overlapping transactions in an order against that of their beginnings.
    finds(&[transaction(1, 1, 9, "r1:1"), transaction(2, 2, 8, "a1:1")], &[]);
    // An append without an outcome may be read, or not.
    finds(
        &[transaction(1, 1, 0, "r2:4 a1:1"), transaction(2, 2, 3, "r1:"), transaction(3, 4, 5, "r1:1")],
        &[],
    );
    finds(&[transaction(1, 1, 0, "a1:1"), transaction(2, 2, 3, "r1:")], &[]);
    // Ends and beginnings at the same time overlap.
    finds(&[transaction(1, 1, 5, "a1:1"), transaction(2, 5, 8, "r1:")], &[]);
}

#[test]
fn a_long_serial_history_passes() {
    let (mut lists, mut history) = (vec![Vec::new(); 3], Vec::new());
    for n in 0..3000u64 {
        let list = (n % 3) as u32;
        let mine = &mut lists[list as usize];
        let read = Step::Read { list, elements: mine.clone() };
        mine.push(n);
        let steps = vec![read, Step::Append { list, element: n }];
        history.push(Transaction { client: list, steps, invoked: 2 * n, end: End::Committed(2 * n + 1) });
    }
    finds(&history, &[]);
}

#[test]
fn garbage_internal_contradictions_and_two_orders_are_found() {
    finds(&at_once(&["r1:7"]), &[Anomaly::Garbage]);
    finds(&at_once(&["a1:7", "r1:7,7"]), &[Anomaly::Garbage]);
    finds(&at_once(&["a1:7", "a1:7"]), &[Anomaly::Garbage]);
    finds(&at_once(&["a1:1 r1:"]), &[Anomaly::Internal]);
    finds(&at_once(&["a1:1", "r1: r1:1"]), &[Anomaly::Internal]);
    finds(&at_once(&["a1:1", "a1:2", "r1:1,2", "r1:2"]), &[Anomaly::IncompatibleOrder]);
}

#[test]
fn aborted_and_intermediate_reads_are_found() {
    finds(&[aborted(transaction(1, 1, 9, "a1:1")), transaction(2, 1, 9, "r1:1")], &[Anomaly::G1a]);
    // That the writer's second element comes after the read is a cycle too.
    finds(&at_once(&["a1:1 a1:2", "r1:1"]), &[Anomaly::G1b, Anomaly::GSingle]);
}

#[test]
fn cycles_are_found_and_named() {
    finds(&at_once(&["a1:1 a2:1", "a1:2 a2:2", "r1:1,2", "r2:2,1"]), &[Anomaly::G0]);
    finds(&at_once(&["a1:1 r2:2", "a2:2 r1:1"]), &[Anomaly::G1c]);
    finds(&at_once(&["a1:1 a2:1", "r1:1 r2:"]), &[Anomaly::GSingle]);
    finds(&at_once(&["r1: a2:1", "r2: a1:2"]), &[Anomaly::G2Item]);
    // A long fork: two readers see two independent writes in different orders.
    finds(&at_once(&["a1:1", "a2:2", "r1:1 r2:", "r1: r2:2"]), &[Anomaly::G2Item]);
}

#[test]
fn lost_updates_are_found() {
    // Also if a third transaction has read one of the two, and if none has.
    finds(&at_once(&["r1: a1:1", "r1: a1:2", "r1:2"]), &[Anomaly::LostUpdate, Anomaly::GSingle]);
    finds(&at_once(&["r1: a1:1", "r1: a1:2"]), &[Anomaly::LostUpdate, Anomaly::G2Item]);
}

#[test]
fn puts_begin_a_list_anew() {
    finds(&at_once(&["a1:1", "p1:2", "p1:3", "r1:1", "r1:3", "r1:2", "r1:2 a1:4", "r1:2,4"]), &[]);
    finds(&at_once(&["p1:2", "r1: a1:1 r1:1", "r1:2 a1:3", "r1:2,3"]), &[]);
    // Appends without a read may be to any version, and puts without an end may have failed.
    finds(&[transaction(1, 1, 0, "p1:2"), transaction(1, 2, 3, "a1:4"), transaction(2, 4, 5, "r1:4")], &[]);
    finds(&at_once(&["p1:2", "r1:5,2", "a1:5"]), &[Anomaly::Garbage]);
    // Transactions that saw a version of the one put and not that of the other.
    finds(&at_once(&["p1:2", "r1:2 a2:1 r1:2", "r2:1 r1:"]), &[Anomaly::GSingle]);
    finds(&at_once(&["p1:2", "r1:2 a1:3", "r1:2 a1:4"]), &[Anomaly::LostUpdate, Anomaly::G2Item]);
}

#[test]
fn puts_come_in_the_order_of_time() {
    let put = |element, invoked, returned| transaction(1, invoked, returned, &format!("p1:{element}"));
    finds(&[put(2, 1, 2), put(3, 3, 4), transaction(2, 5, 6, "r1:3")], &[]);
    finds(&[put(2, 1, 4), put(3, 3, 6), transaction(2, 7, 8, "r1:2")], &[]);
    // The later put is lost, or an append from before it is read after it.
    finds(&[put(2, 1, 2), put(3, 3, 4), transaction(2, 5, 6, "r1:2")], &[Anomaly::RealTime]);
    let (read, again) = (transaction(2, 2, 3, "r1:2"), transaction(2, 10, 11, "r1:2"));
    finds(&[put(2, 1, 9), read, put(3, 4, 9), again], &[Anomaly::RealTime]);
    let append = transaction(2, 2, 9, "r1:2 a1:4");
    finds(&[put(2, 1, 3), append, put(3, 4, 5), transaction(2, 10, 11, "r1:2,4")], &[Anomaly::RealTime]);
    // Two lists, of which one reader sees only the later put and another only the earlier one.
    let (first, second) = (transaction(1, 1, 20, "p1:2"), transaction(2, 1, 20, "p2:3"));
    let readers = [transaction(3, 2, 20, "r1:2 r2:"), transaction(4, 2, 20, "r1: r2:3")];
    finds(&[vec![first, second], readers.to_vec()].concat(), &[Anomaly::G2Item]);
}

#[test]
fn violations_of_real_time_are_found() {
    finds(&[transaction(1, 1, 2, "a1:1"), transaction(2, 3, 4, "r1:")], &[Anomaly::RealTime]);
    finds(&[transaction(1, 1, 2, "r1:1"), transaction(2, 3, 0, "a1:1")], &[Anomaly::RealTime]);
    // Through a third transaction that ended in between: its own edges lead there.
    let third = transaction(3, 3, 4, "a2:1");
    finds(&[transaction(1, 1, 2, "a1:1"), third, transaction(2, 5, 6, "r1:")], &[Anomaly::RealTime]);
}

#[test]
fn a_cycle_is_explained() {
    let findings = check(&at_once(&["a1:1 a2:1", "r1:1 r2:"]));
    assert_eq!(
        findings[0].to_string(),
        "G-single, read skew:\n  \
           T0, client 0, from 1 to 9: append 1 to 1; append 1 to 2;\n  \
           T1, client 1, from 1 to 9: read 1: [1]; read 2: [];\n  \
           T0 comes before T1: T1 read what it appended to list 1 (wr)\n  \
           T1 comes before T0: it read list 2 without the element of T0 (rw)\n  \
           so these transactions have no order"
    );
}

#[test]
fn versions_after_a_put_are_exported_as_a_list() {
    let text = to_edn(&at_once(&["p1:2", "r1:2 a1:3", "r1: a1:4"]));
    for part in [
        "[[:append \"1 after 2\" 2]]",
        "[[:r \"1 after 2\" [2]] [:append \"1 after 2\" 3]]",
        "[[:r 1 []] [:append 1 4]]",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn histories_are_exported_for_elle() {
    let history =
        [transaction(1, 1, 4, "r1: a1:7"), transaction(2, 2, 0, "a1:8"), transaction(3, 4, 6, "r1:7,8")];
    assert_eq!(
        to_edn(&history),
        "{:index 0, :type :invoke, :process 1, :f :txn, :time 1, :value [[:r 1 nil] [:append 1 7]]}\n\
         {:index 1, :type :invoke, :process 2, :f :txn, :time 2, :value [[:append 1 8]]}\n\
         {:index 2, :type :invoke, :process 3, :f :txn, :time 4, :value [[:r 1 nil]]}\n\
         {:index 3, :type :ok, :process 1, :f :txn, :time 4, :value [[:r 1 []] [:append 1 7]]}\n\
         {:index 4, :type :ok, :process 3, :f :txn, :time 6, :value [[:r 1 [7, 8]]]}\n\
         {:index 5, :type :info, :process 2, :f :txn, :time 9223372036854775807, :value [[:append 1 8]]}\n"
            .replace(", 8]", " 8]")
    );
}
