//! The parameters of a modelled cluster: names, units, limits, meanings, and the four published
//! testbeds' values.
//!
//! One list generates the struct, the parameters of a text, and the tables of the documentation. A
//! value's source is a sentence of the paper if the text gives one, and otherwise begins with
//! `assumed:`.

use darter_fabric::ByteSize;

/// A published testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// That of DART, SIGMOD 2026.
    Dart,
    /// That of SMART, OSDI 2023.
    Smart,
    /// That of Sherman, SIGMOD 2022.
    Sherman,
    /// That of XStore, OSDI 2020. A machine's two NICs are one here that is twice as fast.
    XStore,
}

impl Preset {
    /// Number of presets.
    pub const COUNT: usize = 4;
    /// All presets, in the order of their columns.
    pub const ALL: [Self; Self::COUNT] = [Self::Dart, Self::Smart, Self::Sherman, Self::XStore];

    /// Returns its name in a `model:` pool.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dart => "dart",
            Self::Smart => "smart",
            Self::Sherman => "sherman",
            Self::XStore => "xstore",
        }
    }
}

/// The unit of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count.
    Count,
    /// Bytes, written with binary suffixes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// A rate per second, written with decimal suffixes.
    PerSecond,
}

impl Unit {
    /// Returns its name in tables; a count has none.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "bytes",
            Self::Nanoseconds => "ns",
            Self::PerSecond => "1/s",
        }
    }

    pub(super) fn parse(self, text: &str) -> Result<u64, String> {
        if self == Self::Bytes {
            return text.parse::<ByteSize>().map(|size| size.0).map_err(|error| error.to_string());
        }
        let (number, factor) = match text.as_bytes().last() {
            Some(b'K' | b'k') => (&text[..text.len() - 1], 1_000),
            Some(b'M' | b'm') => (&text[..text.len() - 1], 1_000_000),
            Some(b'G' | b'g') => (&text[..text.len() - 1], 1_000_000_000),
            _ => (text, 1),
        };
        let number = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        number
            .and_then(|number| number.parse::<u64>().ok()?.checked_mul(factor))
            .ok_or_else(|| format!("`{text}` is not a number; write 45000000 or 45M"))
    }
}

/// The description of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in a `model:` pool.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// A description in one sentence.
    pub about: &'static str,
    /// The least value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// Value and source for each [`Preset`], in the order of [`Preset::ALL`].
    pub presets: [(u64, &'static str); Preset::COUNT],
}

macro_rules! parameters {
    ($($field:ident $name:literal $unit:ident $min:literal..=$max:expr, $about:literal;
        dart $dart:literal $dart_source:literal;
        smart $smart:literal $smart_source:literal;
        sherman $sherman:literal $sherman_source:literal;
        xstore $xstore:literal $xstore_source:literal;)*) => {
        /// A modelled cluster: all numbers that determine its time.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct ModelSpec {
            /// The testbed that the values are based on; its sources explain the unchanged values.
            pub preset: Preset,
            $(#[doc = $about] pub $field: u64,)*
        }

        /// Every parameter of a [`ModelSpec`], in the order in which it prints.
        pub const PARAMETERS: &[Parameter] = &[$(Parameter {
            name: $name,
            unit: Unit::$unit,
            about: $about,
            min: $min,
            max: $max,
            presets: [
                ($dart, $dart_source),
                ($smart, $smart_source),
                ($sherman, $sherman_source),
                ($xstore, $xstore_source),
            ],
        },)*];

        impl ModelSpec {
            /// Returns the cluster of a paper.
            pub fn preset(preset: Preset) -> Self {
                match preset {
                    Preset::Dart => Self { preset, $($field: $dart,)* },
                    Preset::Smart => Self { preset, $($field: $smart,)* },
                    Preset::Sherman => Self { preset, $($field: $sherman,)* },
                    Preset::XStore => Self { preset, $($field: $xstore,)* },
                }
            }

            /// Returns the values, in the order of [`PARAMETERS`].
            pub fn values(&self) -> [u64; PARAMETERS.len()] {
                [$(self.$field,)*]
            }

            /// Returns the value of the parameter `name`.
            pub(super) fn value_mut(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $($name => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

parameters! {
    compute_nodes "cn" Count 1..=1024,
        "Compute nodes: each is a process with its own pool membership and its own NIC.";
        dart 3 "\"three compute nodes and three memory nodes\" (5.1)";
        smart 16 "\"16 physical machines (16 CNs and 2 MNs)\" (5.1)";
        sherman 8 "\"8 servers\", each of them \"one MS and one CS\" (3)";
        xstore 15 "\"one server machine and (up to) 15 client machines\" (7)";
    memory_nodes "mn" Count 1..=256,
        "Memory nodes, each with its own NIC unless its machine is shared.";
        dart 3 "\"three compute nodes and three memory nodes\" (5.1)";
        smart 2 "\"16 physical machines (16 CNs and 2 MNs)\" (5.1)";
        sherman 8 "\"8 servers\", each of them \"one MS and one CS\" (3)";
        xstore 1 "\"one server machine and (up to) 15 client machines\" (7)";
    shared_machines "shared" Count 0..=256,
        "Machines that are compute node and memory node at once: node i of either kind shares one NIC for i below it.";
        dart 0 "assumed: the text distinguishes compute nodes and memory nodes (5.1)";
        smart 2 "\"two physical machines act as both CN and MN\" (5.1, note 3)";
        sherman 8 "\"We emulate each server as one MS and one CS\" (3)";
        xstore 0 "\"one server machine and (up to) 15 client machines\" (7)";
    threads "threads" Count 1..=65_536,
        "Client threads in all, assigned to the compute nodes round-robin; each is a processor core.";
        dart 168 "\"168 client threads\" (5.2); 3 nodes of 2 x 28 cores (5.1)";
        smart 896 "\"16 at least and 896 at most, evenly distributed across 16 CNs\" (5.2)";
        sherman 176 "\"launches 22 client threads (176 in total in our cluster)\" (3)";
        xstore 360 "\"Each machine has two 12-core Intel Xeon CPUs\" (7), and there are 15";
    coroutines "coroutines" Count 1..=1024,
        "Operations that a thread keeps in flight; they share its core.";
        dart 1 "assumed: the text mentions no coroutines";
        smart 2 "\"Coroutines are used in each client\" (5.1); two in the public code's configuration";
        sherman 1 "assumed: 176 threads in all is what the text counts";
        xstore 4 "assumed: \"82M reqs/s with median latency of 16 us\" (7.2) are 1,300 in flight";
    memory_bytes "memory-bytes" Bytes 65_536..=1_099_511_627_776,
        "Bytes of a memory node's region; the host keeps only what is written.";
        dart 4_294_967_296 "assumed: a region that this host can hold, of \"128GB of DRAM\" (5.1)";
        smart 4_294_967_296 "assumed: a region that this host can hold, of \"64GB DRAM\" (5.1)";
        sherman 1_073_741_824 "assumed: a region that this host can hold, of \"64GB DRAM\" (3)";
        xstore 4_294_967_296 "assumed: a region that this host can hold, of \"128GB of RAM\" (7)";
    rtt_ns "rtt-ns" Nanoseconds 2..=1_000_000_000,
        "Time of a round trip in addition to everything below: wires, switch, PCIe and memory, half of it each way.";
        dart 1_700 "\"The latency of one-sided RDMA operations (~2 us)\" (2.1), less what is priced below";
        smart 1_700 "assumed: as in DART's testbed, whose NIC is the same";
        sherman 1_700 "assumed: as in DART's testbed";
        xstore 1_750 "assumed: 2 us, as in DART's testbed, less what is priced below";
    jitter_ns "jitter-ns" Nanoseconds 0..=1_000_000_000,
        "Maximum additional delay of a reply, evenly distributed and drawn from the seed.";
        dart 100 "assumed: 5% of a round trip, so that clients are not synchronized";
        smart 100 "assumed: 5% of a round trip, so that clients are not synchronized";
        sherman 100 "assumed: 5% of a round trip, so that clients are not synchronized";
        xstore 100 "assumed: 5% of a round trip, so that clients are not synchronized";
    cn_verbs_per_s "cn-verbs-per-s" PerSecond 1_000..=10_000_000_000,
        "Verbs that a compute node's NIC can send per second.";
        dart 45_000_000 "assumed: as a memory node's, the NICs being equal";
        smart 45_000_000 "assumed: as a memory node's, the NICs being equal";
        sherman 45_000_000 "assumed: as a memory node's, the NICs being equal";
        xstore 156_000_000 "assumed: as the server's, the machines being equal";
    mn_verbs_per_s "mn-verbs-per-s" PerSecond 1_000..=10_000_000_000,
        "Verbs on its host's memory that a memory node's NIC can serve per second.";
        dart 45_000_000 "assumed: as SMART measured on a ConnectX-6";
        smart 45_000_000 "\"about 45 Mops/s, which is the IOPS upper bound of the RNIC we use\" (3.1.2)";
        sherman 45_000_000 "assumed: as SMART measured on a ConnectX-6, without a figure for the ConnectX-5";
        xstore 156_000_000 "assumed: \"78M reqs/s\" of two READs each, the best of a cache of the whole index (3), on two NICs";
    nic_bits_per_s "nic-bits-per-s" PerSecond 1_000_000..=10_000_000_000_000,
        "Bits that a NIC can send per second, and receive in the same second.";
        dart 100_000_000_000 "\"100Gbps Mellanox ConnectX-6 InfiniBand NICs\" (5.1)";
        smart 100_000_000_000 "\"one 100Gbps Mellanox ConnectX-6 IB RNIC\" (5.1)";
        sherman 100_000_000_000 "\"one 100Gbps Mellanox ConnectX-5 NIC\" (3)";
        xstore 200_000_000_000 "\"two ConnectX-4 100Gbps IB RNICs\" in each machine (7), which are one here";
    header_bytes "header-bytes" Bytes 0..=4_096,
        "Bytes of a packet that are not payload.";
        dart 40 "assumed: InfiniBand's local, transport and extended headers and checksums, 30 to 58 bytes";
        smart 40 "assumed: InfiniBand's local, transport and extended headers and checksums, 30 to 58 bytes";
        sherman 40 "assumed: InfiniBand's local, transport and extended headers and checksums, 30 to 58 bytes";
        xstore 40 "assumed: InfiniBand's local, transport and extended headers and checksums, 30 to 58 bytes";
    mtu_bytes "mtu-bytes" Bytes 64..=1_048_576,
        "Maximum payload bytes of a packet.";
        dart 4_096 "assumed: InfiniBand's largest";
        smart 4_096 "assumed: InfiniBand's largest";
        sherman 4_096 "assumed: InfiniBand's largest";
        xstore 4_096 "assumed: InfiniBand's largest";
    inline_bytes "inline-bytes" Bytes 0..=65_536,
        "The longest WRITE whose payload travels inside the work request.";
        dart 64 "assumed: a usual limit; the text mentions none";
        smart 200 "assumed: \"writing internal nodes smaller than NODE_16\" is inline (4.1.3), so above 144 bytes";
        sherman 64 "assumed: a usual limit; the text mentions none";
        xstore 64 "assumed: a usual limit; the text mentions none";
    fetch_ns "fetch-ns" Nanoseconds 0..=1_000_000,
        "Delay of a longer WRITE, because the NIC fetches its payload from the compute node's memory.";
        dart 300 "assumed: one PCIe read";
        smart 300 "assumed: one PCIe read; inlining is \"reducing PCIe overhead\" (4.1.3)";
        sherman 300 "assumed: one PCIe read";
        xstore 300 "assumed: one PCIe read";
    atomics_per_s "atomics-per-s" PerSecond 1_000..=10_000_000_000,
        "CASes and FAAs on its host's memory that a memory node's NIC can serve per second, on different addresses.";
        dart 22_500_000 "assumed: half of its verbs, since an atomic is two PCIe transactions and a READ one";
        smart 22_500_000 "assumed: half of its verbs, since an atomic is two PCIe transactions and a READ one";
        sherman 22_500_000 "assumed: half of its verbs; \"two PCIe transactions at receiver side\" (1)";
        xstore 78_000_000 "assumed: half of its verbs, since an atomic is two PCIe transactions and a READ one";
    address_atomics_per_s "address-atomics-per-s" PerSecond 1_000..=10_000_000_000,
        "CASes and FAAs that it can serve per second on one address of its host's memory, one after another.";
        dart 2_500_000 "assumed: two PCIe transactions of 200 ns each";
        smart 2_500_000 "assumed: two PCIe transactions of 200 ns each";
        sherman 2_500_000 "assumed: 200 ns each; NICs \"serialize conflicting atomic commands\", each with \"two PCIe transactions\" (1)";
        xstore 2_500_000 "assumed: two PCIe transactions of 200 ns each";
    atomic_buckets "atomic-buckets" Count 1..=1_048_576,
        "Addresses that a NIC distinguishes for that, by the low bits of the word's number.";
        dart 4_096 "assumed: a power of two of this order";
        smart 4_096 "assumed: a power of two of this order";
        sherman 4_096 "assumed: a power of two of this order";
        xstore 4_096 "assumed: a power of two of this order";
    onchip_bytes "onchip-bytes" Bytes 0..=1_073_741_824,
        "Bytes of a memory node's NIC memory that indexes can use.";
        dart 262_144 "assumed: as in Sherman's testbed";
        smart 131_072 "\"128MB per RNIC in our evaluation\" (5.3), read as 128 KB, which NICs of this make have";
        sherman 262_144 "256 KB a NIC, from the full paper and the public code";
        xstore 262_144 "assumed: as in Sherman's testbed";
    onchip_verbs_per_s "onchip-verbs-per-s" PerSecond 1_000..=10_000_000_000,
        "Verbs on its own memory that a memory node's NIC can serve per second.";
        dart 110_000_000 "assumed: as in Sherman's testbed";
        smart 110_000_000 "assumed: as in Sherman's testbed";
        sherman 110_000_000 "\"extremely high throughput for RDMA atomic commands (~110 Mops)\" (2.1)";
        xstore 110_000_000 "assumed: as in Sherman's testbed";
    onchip_address_atomics_per_s "onchip-address-atomics-per-s" PerSecond 1_000..=10_000_000_000,
        "CASes and FAAs that it can serve per second on one address of the NIC's memory.";
        dart 50_000_000 "assumed: 20 ns each, with no PCIe transaction";
        smart 50_000_000 "assumed: 20 ns each, with no PCIe transaction";
        sherman 50_000_000 "assumed: 20 ns each; on-chip locks are \"eliminating PCIe transactions\" (2.1)";
        xstore 50_000_000 "assumed: 20 ns each, with no PCIe transaction";
    post_ns "post-ns" Nanoseconds 0..=1_000_000,
        "Processor time to post a batch: the doorbell.";
        dart 80 "assumed: a write to the device's registers";
        smart 80 "assumed: a write to the device's registers";
        sherman 80 "assumed: a write to the device's registers";
        xstore 80 "assumed: a write to the device's registers";
    verb_ns "verb-ns" Nanoseconds 0..=1_000_000,
        "Processor time for each verb of it: the work request.";
        dart 30 "assumed: a cache line or two filled";
        smart 30 "assumed: a cache line or two filled";
        sherman 30 "assumed: a cache line or two filled";
        xstore 30 "assumed: a cache line or two filled";
    poll_ns "poll-ns" Nanoseconds 0..=1_000_000,
        "Processor time to find a batch's completion and continue.";
        dart 100 "assumed: a poll of the completion queue and a switch of context";
        smart 100 "assumed: a poll of the completion queue and a switch of context";
        sherman 100 "assumed: a poll of the completion queue and a switch of context";
        xstore 100 "assumed: a poll of the completion queue and a switch of context";
    wake_ns "wake-ns" Nanoseconds 1..=1_000_000,
        "Processor time of a task woken by another task or itself.";
        dart 100 "assumed: a cache line that moves between cores";
        smart 100 "assumed: a cache line that moves between cores";
        sherman 100 "assumed: a cache line that moves between cores";
        xstore 100 "assumed: a cache line that moves between cores";
    op_ns "op-ns" Nanoseconds 0..=1_000_000_000,
        "Processor time of an operation in addition to its verbs: hashing, comparing, cache look-ups.";
        dart 300 "assumed: a few hundred instructions and some cache misses";
        smart 300 "assumed: a few hundred instructions and some cache misses";
        sherman 300 "assumed: a few hundred instructions and some cache misses";
        xstore 350 "\"traversing tree-based index locally\" takes 2.14 us, \"compared to XSTORE (0.35 us)\" (7.2)";
    memory_cores "mn-cores" Count 1..=1_024,
        "Cores of a memory node that run procedures for its callers, each one at a time.";
        dart 24 "assumed: as in the testbed of XStore (OSDI 2020), \"The server has two 12-core CPUs\" (figure 2)";
        smart 24 "assumed: as in the testbed of XStore (OSDI 2020), \"The server has two 12-core CPUs\" (figure 2)";
        sherman 24 "assumed: as in the testbed of XStore (OSDI 2020), \"The server has two 12-core CPUs\" (figure 2)";
        xstore 24 "\"All systems fully utilize all of the 24 CPU cores\" of the server (7)";
    call_ns "call-ns" Nanoseconds 0..=1_000_000_000,
        "Time for which a call occupies one of them.";
        dart 1_000 "assumed: \"around 24M reqs/s\" of a server-centric store on 24 cores (XStore, OSDI 2020, 3)";
        smart 1_000 "assumed: \"around 24M reqs/s\" of a server-centric store on 24 cores (XStore, OSDI 2020, 3)";
        sherman 1_000 "assumed: \"around 24M reqs/s\" of a server-centric store on 24 cores (XStore, OSDI 2020, 3)";
        xstore 1_000 "\"around 24M reqs/s\" of a server-centric store on 24 cores (3)";
    seed "seed" Count 0..=18_446_744_073_709_551_615,
        "Random seed of the jitter.";
        dart 1 "any";
        smart 1 "any";
        sherman 1 "any";
        xstore 1 "any";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tables of lab/docs/model.md: every parameter with each testbed's value, then the
    /// sources of the values.
    fn reference() -> String {
        use std::fmt::Write;
        let [first, second, third, fourth] = Preset::ALL.map(Preset::name);
        let mut text = format!(
            "| name | unit | what it is | {first} | {second} | {third} | {fourth} |\n|---|---|---|---|---|---|---|\n"
        );
        for Parameter { name, unit, about, presets, .. } in PARAMETERS {
            let [first, second, third, fourth] = presets.map(|(value, _)| value);
            let values = format!("{first} | {second} | {third} | {fourth}");
            writeln!(text, "| `{name}` | {} | {about} | {values} |", unit.name()).unwrap();
        }
        text.push('\n');
        for Parameter { name, presets, .. } in PARAMETERS {
            let mut said: Vec<(String, &str)> = Vec::new();
            for (preset, (_, source)) in Preset::ALL.into_iter().zip(presets) {
                match said.iter_mut().find(|(_, known)| known == source) {
                    Some((names, _)) => names.extend([", ", preset.name()]),
                    None => said.push((preset.name().to_owned(), source)),
                }
            }
            writeln!(text, "- `{name}`").unwrap();
            for (names, source) in said {
                writeln!(text, "  - {names}: {source}").unwrap();
            }
        }
        text
    }

    #[test]
    fn the_document_lists_what_the_program_holds() {
        let document = include_str!("../../docs/model.md");
        let reference = reference();
        assert!(document.contains(&reference), "lab/docs/model.md must contain:\n\n{reference}");
    }
}
