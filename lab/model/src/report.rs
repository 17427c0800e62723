//! The utilization of each resource, which shows what limits the throughput.

use super::nic::{PS, Ps};
use super::parameters::ModelSpec;
use super::world::World;
use std::fmt;

/// A resource that work waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The client threads' processors.
    Processors,
    /// Verbs per second that a NIC sends.
    Posts,
    /// Verbs per second on its host's memory that a NIC serves.
    Serves,
    /// Bits per second that a NIC sends.
    Sending,
    /// Bits per second that a NIC receives.
    Receiving,
    /// Atomics per second of a NIC on its host's memory.
    Atomics,
    /// Atomics per second on one address.
    Address,
    /// Verbs per second on a NIC's own memory.
    OnChip,
    /// The cores of a memory node that run procedures.
    Cores,
}

impl Resource {
    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::Posts => "verbs sent",
            Self::Serves => "verbs served",
            Self::Sending => "sending",
            Self::Receiving => "receiving",
            Self::Atomics => "atomics",
            Self::Address => "one address",
            Self::OnChip => "on-chip memory",
            Self::Cores => "cores",
        }
    }
}

/// The work of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineUse {
    /// `cn0`, `mn2`, or `cn0+mn0` for a machine with both roles.
    pub name: String,
    /// The utilization of each part, from 0 to 1: on average for the client threads of a machine
    /// that has some and for the cores of a memory node, the maximum for its addresses.
    pub busy: Vec<(Resource, f64)>,
    /// Verbs that its clients posted.
    pub verbs_sent: u64,
    /// Verbs that its NIC served.
    pub verbs_served: u64,
    /// Bytes it sent, headers included.
    pub bytes_sent: u64,
    /// Bytes it received, headers included.
    pub bytes_received: u64,
}

/// The busiest resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// The machine.
    pub machine: String,
    /// Its part.
    pub resource: Resource,
    /// Its utilization, from 0 to 1.
    pub busy: f64,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {:.0}% busy", self.resource.name(), self.machine, self.busy * 100.0)
    }
}

/// The work of a modelled cluster in some virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Nanoseconds of virtual time, to the end of the last task or, while tasks run, to now.
    pub elapsed_ns: u64,
    /// The machines, compute nodes first.
    pub machines: Vec<MachineUse>,
}

impl Report {
    pub(super) fn of(spec: &ModelSpec, world: &World) -> Self {
        let end = if world.alive == 0 { world.ended_at } else { world.now() };
        let elapsed = end.saturating_sub(world.measured_since);
        let share = |busy: Ps| if elapsed == 0 { 0.0 } else { (busy as f64 / elapsed as f64).min(1.0) };
        let (compute, shared) = (spec.compute_nodes as usize, spec.shared_machines as usize);
        let mut hottest = vec![0; world.nics.len()];
        for (nic, busy) in world.busiest_addresses() {
            hottest[nic] = busy;
        }
        let mut cores = vec![0; world.nics.len()];
        for (nic, busy) in world.busy_cores() {
            cores[nic] = busy;
        }
        let machine = |number: usize| {
            let nic = &world.nics[number];
            let mut busy = Vec::new();
            if number < compute {
                let threads = || world.threads.iter().skip(number).step_by(compute);
                let total: Ps = threads().map(|thread| thread.busy).sum();
                busy.push((Resource::Processors, share(total / threads().count().max(1) as u64)));
                busy.push((Resource::Posts, share(nic.posts.busy)));
            }
            busy.push((Resource::Sending, share(nic.send.busy)));
            busy.push((Resource::Receiving, share(nic.receive.busy)));
            if number < shared || number >= compute {
                busy.push((Resource::Serves, share(nic.serves.busy)));
                busy.push((Resource::Atomics, share(nic.atomics.busy)));
                busy.push((Resource::Address, share(hottest[number])));
                busy.push((Resource::OnChip, share(nic.chip.busy)));
                busy.push((Resource::Cores, share(cores[number])));
            }
            let name = match number {
                number if number < shared => format!("cn{number}+mn{number}"),
                number if number < compute => format!("cn{number}"),
                number => format!("mn{}", number - compute + shared),
            };
            MachineUse {
                name,
                busy,
                verbs_sent: nic.verbs_sent,
                verbs_served: nic.verbs_served,
                bytes_sent: nic.bytes_sent,
                bytes_received: nic.bytes_received,
            }
        };
        Self { elapsed_ns: elapsed / PS, machines: (0..world.nics.len()).map(machine).collect() }
    }

    /// Returns a count in the elapsed time as a rate per second.
    pub fn per_s(&self, count: u64) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// Returns the busiest resource, the first if there are several. `None` if the cluster is
    /// empty.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let all = self
            .machines
            .iter()
            .flat_map(|machine| machine.busy.iter().map(move |&(resource, busy)| (machine, resource, busy)));
        let (machine, resource, busy) = all.reduce(|most, next| if next.2 > most.2 { next } else { most })?;
        Some(Bottleneck { machine: machine.name.clone(), resource, busy })
    }
}
