//! The description of a cluster: parsed from a text such as `preset=smart,threads=64,mn=4`, printed
//! in full, explained in a table.

use super::parameters::{ModelSpec, PARAMETERS, Parameter, Preset};
use darter_fabric::{OFFSET_LIMIT, SUPERBLOCK_BYTES};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Maximum total bytes of all memory nodes of a model.
const MEMORY_BYTES_MAX: u64 = OFFSET_LIMIT;
/// Maximum number of tasks of a model: threads times coroutines.
const TASKS_MAX: u64 = 1 << 20;
/// Maximum total number of buckets of all memory nodes of a model.
const BUCKETS_MAX: u64 = 1 << 20;
/// Longest text that is parsed.
const TEXT_BYTES_MAX: usize = 4096;

/// Why a text does not describe a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; lab/docs/model.md lists the parameters")]
pub struct SpecError(String);

/// One parameter of one cluster, for a table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The parameter.
    pub parameter: &'static Parameter,
    /// Its value here.
    pub value: u64,
    /// Its source: a sentence of the preset's paper, the reason for an assumption, or the user.
    pub source: &'static str,
}

/// The place of one of a cluster's client tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The compute node.
    pub compute_node: usize,
    /// The thread, counted over the whole cluster.
    pub thread: usize,
    /// The operation of the thread, among those in flight.
    pub coroutine: usize,
    /// The task, counted over the whole cluster.
    pub task: usize,
}

impl ModelSpec {
    /// Returns every parameter with its value and its source.
    pub fn settings(&self) -> impl Iterator<Item = Setting> {
        let column = self.preset as usize;
        PARAMETERS.iter().zip(self.values()).map(move |(parameter, value)| {
            let (known, source) = parameter.presets[column];
            Setting { parameter, value, source: if value == known { source } else { "given by the user" } }
        })
    }

    /// Returns the client tasks: thread by thread, each with its coroutines; threads are assigned
    /// to the compute nodes round-robin.
    pub fn seats(&self) -> impl Iterator<Item = Seat> + use<> {
        let (nodes, coroutines) = (self.compute_nodes as usize, self.coroutines as usize);
        (0..self.threads as usize * coroutines).map(move |task| {
            let thread = task / coroutines;
            Seat { compute_node: thread % nodes, thread, coroutine: task % coroutines, task }
        })
    }

    /// Returns a number that equal descriptions share and different ones do not: the first bytes of
    /// the SHA-256 of the whole text.
    pub fn fingerprint(&self) -> u64 {
        let digest = Sha256::digest(self.to_string());
        digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Checks every value against its limits, and those that depend on each other.
    ///
    /// # Errors
    /// Fails if one is out of range; the error names it.
    pub fn verify(&self) -> Result<(), SpecError> {
        let wrong = |what: String| Err(SpecError(what));
        for (Parameter { name, min, max, .. }, value) in PARAMETERS.iter().zip(self.values()) {
            if !(*min..=*max).contains(&value) {
                return wrong(format!("`{name}={value}`: it must be from {min} to {max}"));
            }
        }
        if !self.memory_bytes.is_multiple_of(SUPERBLOCK_BYTES) {
            return wrong(format!("`memory-bytes={}`: it must be a multiple of 4096", self.memory_bytes));
        }
        if self.memory_nodes * self.memory_bytes > MEMORY_BYTES_MAX {
            return wrong(format!("mn={} times memory-bytes is above 1 TiB", self.memory_nodes));
        }
        if self.threads * self.coroutines > TASKS_MAX {
            return wrong(format!("`threads` times `coroutines` is above {TASKS_MAX}"));
        }
        if self.memory_nodes * self.atomic_buckets > BUCKETS_MAX {
            return wrong(format!("`mn` times `atomic-buckets` is above {BUCKETS_MAX}"));
        }
        let most = self.compute_nodes.min(self.memory_nodes);
        if self.shared_machines > most {
            return wrong(format!("`shared={}`: {most} machines can be both at most", self.shared_machines));
        }
        Ok(())
    }
}

impl FromStr for ModelSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = |what: String| Err(SpecError(what));
        if text.len() > TEXT_BYTES_MAX {
            return wrong(format!("the description is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let mut pairs = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return wrong(format!("`{pair}` lacks a value"));
            };
            if pairs.iter().any(|&(known, _)| known == name) {
                return wrong(format!("`{name}` is given twice"));
            }
            pairs.push((name, value));
        }
        let mut spec = Self::preset(Preset::Dart);
        if let Some(&(_, name)) = pairs.iter().find(|(name, _)| *name == "preset") {
            let Some(preset) = Preset::ALL.into_iter().find(|preset| preset.name() == name) else {
                return wrong(format!(
                    "unknown preset `{name}`; the presets are dart, smart, sherman and xstore"
                ));
            };
            spec = Self::preset(preset);
        }
        let says_shared = pairs.iter().any(|&(name, _)| name == "shared");
        for (name, text) in pairs.into_iter().filter(|&(name, _)| name != "preset") {
            let Some(parameter) = PARAMETERS.iter().find(|parameter| parameter.name == name) else {
                return wrong(format!("unknown parameter `{name}`"));
            };
            let value = parameter.unit.parse(text).map_err(|what| SpecError(format!("`{name}`: {what}")))?;
            if let Some(place) = spec.value_mut(name) {
                *place = value;
            }
        }
        // Fewer nodes than the preset's share fewer machines.
        if !says_shared {
            spec.shared_machines = spec.shared_machines.min(spec.compute_nodes).min(spec.memory_nodes);
        }
        spec.verify()?;
        Ok(spec)
    }
}

impl fmt::Display for ModelSpec {
    /// Writes every parameter, so that equal texts are equal clusters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "preset={}", self.preset.name())?;
        PARAMETERS
            .iter()
            .zip(self.values())
            .try_for_each(|(parameter, value)| write!(f, ",{}={value}", parameter.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_read_and_print() {
        for preset in Preset::ALL {
            let spec = ModelSpec::preset(preset);
            spec.verify().unwrap();
            assert_eq!(spec.to_string().parse::<ModelSpec>().unwrap(), spec);
            assert_eq!(format!("preset={}", preset.name()).parse::<ModelSpec>().unwrap(), spec);
            assert!(spec.settings().all(|setting| setting.source != "given by the user"));
        }
        let spec: ModelSpec =
            "threads=7,memory-bytes=64M,mn=1,preset=smart,mn-verbs-per-s=30M".parse().unwrap();
        assert_eq!((spec.compute_nodes, spec.memory_nodes, spec.shared_machines), (16, 1, 1));
        assert_eq!((spec.threads, spec.memory_bytes, spec.mn_verbs_per_s), (7, 64 << 20, 30_000_000));
        let given = spec.settings().filter(|setting| setting.source == "given by the user").count();
        assert_eq!(given, 5, "shared follows mn");
        assert_eq!(spec.fingerprint(), spec.to_string().parse::<ModelSpec>().unwrap().fingerprint());
        assert_ne!(spec.fingerprint(), ModelSpec { seed: 2, ..spec.clone() }.fingerprint());
        let seats: Vec<(usize, usize)> =
            spec.seats().map(|seat| (seat.compute_node, seat.coroutine)).collect();
        assert_eq!(seats[..5], [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
        assert_eq!(seats.len(), 14);
        assert_eq!("".parse::<ModelSpec>().unwrap(), ModelSpec::preset(Preset::Dart));
    }

    #[test]
    fn nonsense_says_what_is_wrong_and_where_to_look() {
        let long = format!("seed={}", "0".repeat(5000));
        for (text, word) in [
            ("threads", "lacks a value"),
            ("threads=", "not a number"),
            ("threads=-1", "not a number"),
            ("threads=+1", "not a number"),
            ("threads=1é", "not a number"),
            ("threads=0", "from 1 to"),
            ("threads=99999999999999999999", "not a number"),
            ("threads=99999999999G", "not a number"),
            ("threads=1M", "from 1 to"),
            ("threads=65536,coroutines=1024", "above"),
            ("mn=257", "from 1 to 256"),
            ("mn=2,mn=3", "twice"),
            ("preset=dart,preset=dart", "twice"),
            ("preset=fusee", "unknown preset"),
            ("colour=red", "unknown parameter"),
            ("memory-bytes=100001", "multiple of 4096"),
            ("memory-bytes=1T", "1 TiB"),
            ("memory-bytes=1Q", "not a size"),
            ("mn=256,memory-bytes=64K,atomic-buckets=1048576", "atomic-buckets"),
            ("cn=2,shared=3", "2 machines"),
            ("wake-ns=0", "from 1 to"),
            (long.as_str(), "longer"),
        ] {
            let error = text.parse::<ModelSpec>().unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("lab/docs/model.md"), "{text}: {error}");
        }
        let spec = ModelSpec { mtu_bytes: 0, ..ModelSpec::preset(Preset::Dart) };
        assert!(crate::Model::new(&spec).unwrap_err().to_string().contains("mtu-bytes"));
    }
}
