//! A server as a member of its pool: evicted by the others, and stopped by its operator.

use super::super::wire;
use super::*;
use darter_fabric::{CallFault, GlobalAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A world whose server is not registered at the node: its procedures are run directly, and each of
/// its memberships is in another process.
fn unregistered() -> (World, XStoreService<Sim>, Arc<AtomicU32>) {
    let world = World::new(INLINE);
    let (sim, count) = (world.sim.clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&count);
    let service =
        XStoreService::connecting(move || Ok(sim.process(10 + counted.fetch_add(1, Ordering::Relaxed))));
    (world, service, count)
}

fn call(service: &XStoreService<Sim>, procedure: u64) -> Result<Vec<u64>, CallFault> {
    block_on(service.procedures().run(procedure, Vec::new()))
}

/// Keeps the server silent until the others have evicted it.
fn shut_out(world: &mut World) {
    // Silence counts from when it is noticed, and one round evicts no member.
    for _ in 0..2 {
        block_on(world.pool.maintain(&mut world.client)).unwrap();
        world.sim.advance_ms(60_000);
    }
    block_on(world.pool.maintain(&mut world.client)).unwrap();
    assert!(world.pool.take_evicted());
}

fn assert_says_shut_out(fault: CallFault) {
    let CallFault::Failed(error) = fault else { panic!() };
    assert!(error.message.contains("shut out") || error.message.contains("evicted"), "{error}");
}

/// The first call after the eviction fails, and the next one is run by a member again.
#[test]
fn a_server_that_was_shut_out_comes_back() {
    for by_upkeep in [false, true] {
        let (mut world, service, memberships) = unregistered();
        assert_eq!(call(&service, wire::MAINTAIN), Ok(vec![0]));
        shut_out(&mut world);
        if by_upkeep {
            block_on(service.maintain()).unwrap_err();
            assert!(block_on(service.maintain()).is_ok(), "upkeep without a membership");
        } else {
            assert_says_shut_out(call(&service, wire::MAINTAIN).unwrap_err());
        }
        assert_eq!(call(&service, wire::MAINTAIN), Ok(vec![0]));
        assert_eq!(memberships.load(Ordering::Relaxed), 2);
    }
}

/// The same for a server that owns no range yet, whose first call was for a range that does not
/// exist.
#[test]
fn a_server_without_a_range_comes_back() {
    for by_upkeep in [false, true] {
        let (mut world, service, memberships) = unregistered();
        let ping = |range: GlobalAddr| {
            block_on(service.procedures().run(wire::OF_RANGE, vec![range.bits(), wire::PING]))
        };
        let range = world.index.shared.descriptor.addr;
        let answer = ping(range.plus(8)).unwrap();
        assert!(matches!(wire::outcome(&answer), Err(IndexError::Moved { .. })));
        // Upkeep keeps the membership.
        for _ in 0..4 {
            block_on(world.pool.maintain(&mut world.client)).unwrap();
            world.sim.advance_ms(PoolOptions::default().lease_ms / 2);
            block_on(service.maintain()).unwrap();
        }
        assert!(!world.pool.take_evicted());
        shut_out(&mut world);
        if by_upkeep {
            block_on(service.maintain()).unwrap_err();
        } else {
            assert_says_shut_out(ping(range).unwrap_err());
        }
        assert!(wire::outcome(&ping(range).unwrap()).is_ok());
        assert_eq!(memberships.load(Ordering::Relaxed), 2);
    }
}

/// A server that is stopped leaves the pool and returns an error to its callers.
#[test]
fn a_server_that_stops_is_a_member_no_more() {
    let (mut world, service, _) = unregistered();
    block_on(service.start()).unwrap();
    let members = |world: &mut World| {
        let usage = block_on(world.pool.usage(&mut world.client)).unwrap();
        usage.members.len()
    };
    let before = members(&mut world);
    service.end();
    assert_eq!(members(&mut world), before - 1);
    let CallFault::Failed(error) = call(&service, wire::PING).unwrap_err() else { panic!() };
    assert!(error.message.contains("the server is stopping"), "{error}");
    assert!(block_on(service.maintain()).is_ok());
}
