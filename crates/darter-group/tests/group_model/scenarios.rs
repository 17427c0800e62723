//! The starts and bounds of explorations, and the scenario that finds each planted error.

use crate::state::{Flaw, Op};
use crate::step::Scenario;

/// Two replicas, two clients with one operation each; nothing goes wrong except suspicion.
const PAIR: Scenario = Scenario {
    name: "two replicas",
    replicas: 2,
    programs: [&[Op::Add], &[Op::Read]],
    switches: 1,
    deaths: 0,
    learns: false,
    returns: false,
    is_durable: false,
    changes: true,
    views_max: 3,
    hands_over: false,
};

/// Two replicas with logs. Both may lose power, and return.
const LOGS: Scenario =
    Scenario { name: "two logs, two power failures", deaths: 2, returns: true, is_durable: true, ..PAIR };

/// Scenarios of the default tests.
pub(crate) fn small() -> Vec<Scenario> {
    vec![
        Scenario { deaths: 1, ..PAIR },
        Scenario { name: "a primary that hands over", hands_over: true, ..PAIR },
        Scenario {
            name: "a client that reads twice",
            programs: [&[Op::Add], &[Op::Read, Op::Read]],
            views_max: 2,
            ..PAIR
        },
        Scenario {
            name: "a client that is shut out",
            programs: [&[Op::Add], &[Op::Fence, Op::Read]],
            views_max: 2,
            ..PAIR
        },
        Scenario { name: "three replicas", replicas: 3, views_max: 2, ..PAIR },
        Scenario { name: "two logs, two power failures, two views", views_max: 2, changes: false, ..LOGS },
    ]
}

/// Scenarios that take minutes.
pub(crate) fn large() -> Vec<Scenario> {
    vec![
        Scenario { name: "three replicas and a death", replicas: 3, views_max: 2, deaths: 1, ..PAIR },
        Scenario { name: "a replica that comes back", deaths: 1, returns: true, ..PAIR },
        LOGS,
        Scenario { name: "two logs, three power failures", deaths: 3, switches: 0, ..LOGS },
        Scenario { name: "three logs, two power failures", replicas: 3, views_max: 2, switches: 0, ..LOGS },
        Scenario { name: "a learner", learns: true, deaths: 1, ..PAIR },
        Scenario { name: "three replicas and three views", replicas: 3, deaths: 1, switches: 0, ..PAIR },
    ]
}

/// Returns the scenario that should find an error.
pub(crate) fn finder(flaw: Flaw) -> Scenario {
    let reads_twice = Scenario { deaths: 1, programs: [&[Op::Add], &[Op::Read, Op::Read]], ..PAIR };
    match flaw {
        Flaw::FencesForgotten => {
            Scenario { programs: [&[Op::Add], &[Op::Fence, Op::Read]], views_max: 2, ..PAIR }
        }
        Flaw::OldServes => Scenario { deaths: 1, returns: true, views_max: 2, ..PAIR },
        Flaw::LearnerPromoted | Flaw::LearnerUnawaited => {
            Scenario { replicas: 1, learns: true, deaths: 1, ..PAIR }
        }
        Flaw::FloorForgotten => Scenario { replicas: 3, changes: false, ..PAIR },
        Flaw::ReadBeforeAcks => Scenario { views_max: 2, ..reads_twice },
        Flaw::NoViewCheck | Flaw::SuffixKept => Scenario { programs: [&[Op::Add], &[Op::Add]], ..PAIR },
        Flaw::AckBeforeSync | Flaw::OwnSyncForgotten | Flaw::LeaseForgotten | Flaw::LogOfEarlierView => {
            let programs: [&[Op]; 2] = [&[Op::Add], &[Op::Read, Op::Read]];
            let changes = flaw == Flaw::LogOfEarlierView;
            Scenario { programs, changes, views_max: 2 + u8::from(changes), ..LOGS }
        }
        _ => PAIR,
    }
}
