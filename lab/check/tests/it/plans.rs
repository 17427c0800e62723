//! The explorer's plans and scenarios. These tests are not the library's own, since a second copy of
//! all indexes would be compiled for them.

use darter_check::explore::scenario::common;
use darter_check::explore::{Plan, Settings, subject, subjects};
use std::collections::BTreeMap;

#[test]
fn each_scenario_has_its_turns() {
    let settings = Settings::of(subject("quiver").unwrap());
    assert!(settings.turns() > settings.scenarios.len() as u64);
    let mut left: BTreeMap<&str, u64> = BTreeMap::new();
    for scenario in &settings.scenarios {
        left.insert(&scenario.name, 3 * scenario.turns);
    }
    for run in 0..3 * settings.turns() {
        *left.get_mut(&settings.plan(run).scenario.name[..]).unwrap() -= 1;
    }
    assert!(left.values().all(|&left| left == 0), "{left:?}");
}

#[test]
fn hot_keys_are_not_filler_and_names_are_distinct() {
    for subject in subjects() {
        for scenario in subject.scenarios().iter().chain(&common()) {
            let name = &scenario.name;
            assert!(!name.contains('/') && scenario.present.len() <= scenario.hot.len());
            for key in &scenario.hot {
                assert!(!scenario.filler.contains(key), "{name}: {key:?}");
            }
        }
        for scenario in subject.scenarios() {
            assert_eq!(subject.scenario(&scenario.name), Ok(scenario));
        }
    }
}

#[test]
fn values_read_back_as_written() {
    for scenario in common() {
        for number in 0..9 {
            assert_eq!(scenario.number(&scenario.value(number)), number);
        }
        assert_eq!(scenario.number(&[0; 7]), u64::MAX);
    }
}

#[test]
fn plans_read_back_as_written() {
    let line = "dart/grow-n4/nodes=2/process=one/cold/kill=0@17/power=0@3/p0,g1,s;d0,M,m";
    let plan: Plan = line.parse().unwrap();
    assert_eq!(plan.to_string(), line);
    assert_eq!((plan.clients.len(), plan.faults.len()), (2, 2));
    for line in [
        "dart/plain/nodes=1/process=0010/warm/p0;p1;L;M,M",
        "dart/plain/nodes=1/process=each/warm/verbs=rdma/p0;p1",
        "dart/plain/nodes=1/process=each/warm/verbs=rdma+split/sides=mixed/p0;p1",
        "dart/plain/nodes=1/process=each/warm/durability=flush/power=0@7/p0;p1",
        "dart/plain/nodes=2/process=each/warm/groups=77/kill=0@700/p0;p1",
        "quiver/plain/nodes=3/process=each/warm/lose=2@40/lose=1@7/kill=60@99/kill=60@3/p0;p1",
        "dart/plain/nodes=1/process=each/warm/groups=77@1500/p0;p1",
    ] {
        assert_eq!(line.parse::<Plan>().unwrap().to_string(), line);
    }
}

#[test]
fn nonsense_is_refused() {
    for line in [
        "",
        "dart",
        "dart/nowhere/g0",
        "dart/plain/x9",
        "dart/plain/process=2/g0",
        "dart/plain/process=00/g0",
        "dart/plain/process=02/g0;g0",
        "dart/plain/nodes=0/g0",
        "dart/plain/nodes=2/lose=1@3/g0",
        "quiver/plain/nodes=2/lose=0@3/g0",
        "quiver/plain/nodes=2/lose=2@3/g0",
        "quiver/plain/nodes=2/lose=1@3/pause=0@1/g0",
        "dart/plain/verbs=mixed/g0",
        "dart/plain/sides=three/g0",
        "dart/plain/durability=none/g0",
        "dart/plain/g99",
        "dart/plain/groups=/g0",
        "dart/plain/groups=7@/g0",
        "dart/plain/groups=7@x/g0",
        "dart/plain/groups=7/hold=0@1/g0",
        "dart/plain/groups=7/verbs=rdma/g0",
        "dart/plain/groups=7/durability=log/g0",
        "xstore/plain/groups=7/g0",
        "dart/plain/kill=1/g0",
        "dart/plain/kill=x@y/g0",
        "nobodys/plain/g0",
    ] {
        assert!(line.parse::<Plan>().is_err(), "{line}");
    }
}
