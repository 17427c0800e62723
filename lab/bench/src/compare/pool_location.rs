//! The location of a comparison's pools, which determines the clock of its measurements.

use darter_model::ModelSpec;
use std::fmt;
use std::str::FromStr;

/// The location of each index's pool.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolLocation {
    /// Memory of this process.
    Local,
    /// Memory nodes in separate processes on this machine, over TCP.
    Tcp {
        /// Whether they are durable, by logs in the directory for temporary files.
        is_logged: bool,
    },
    /// A modelled cluster: times are of the model's clock.
    Model {
        /// The description on the command line.
        asked: String,
        /// The parsed description.
        spec: Box<ModelSpec>,
    },
}

impl PoolLocation {
    /// A modelled cluster.
    pub fn modelled(spec: ModelSpec) -> Self {
        Self::Model { asked: spec.to_string(), spec: Box::new(spec) }
    }

    /// Whether times are of a model's clock.
    pub fn is_modelled(&self) -> bool {
        matches!(self, Self::Model { .. })
    }

    /// Number of compute nodes, each with its own index handle and cache.
    pub fn compute_nodes(&self) -> usize {
        match self {
            Self::Local | Self::Tcp { .. } => 1,
            Self::Model { spec, .. } => spec.compute_nodes as usize,
        }
    }

    /// Returns the full description: equal texts are equal locations.
    pub(crate) fn canonical(&self) -> String {
        match self {
            Self::Model { spec, .. } => format!("model:{spec}"),
            Self::Local | Self::Tcp { .. } => self.to_string(),
        }
    }
}

impl fmt::Display for PoolLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Tcp { is_logged } => f.write_str(if *is_logged { "tcp:log" } else { "tcp" }),
            Self::Model { asked, .. } => write!(f, "model:{asked}"),
        }
    }
}

impl FromStr for PoolLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("model:")) {
            ("local", _) => Ok(Self::Local),
            ("tcp", _) => Ok(Self::Tcp { is_logged: false }),
            ("tcp:log", _) => Ok(Self::Tcp { is_logged: true }),
            (_, Some(asked)) => {
                let spec: ModelSpec = asked.parse().map_err(|error| format!("{error}"))?;
                Ok(Self::Model { asked: asked.to_owned(), spec: Box::new(spec) })
            }
            _ => {
                Err("choose local, tcp, tcp:log, or model: with a cluster to model, as in model:preset=dart"
                    .to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_parsing() {
        for text in ["local", "tcp", "tcp:log", "model:preset=smart,mn=4"] {
            assert_eq!(text.parse::<PoolLocation>().unwrap().to_string(), text);
        }
        let place: PoolLocation = "model:preset=dart,cn=2".parse().unwrap();
        assert!(place.is_modelled() && place.canonical().contains("cn=2,") && place.compute_nodes() == 2);
        assert_ne!(place.canonical(), "model:preset=dart".parse::<PoolLocation>().unwrap().canonical());
        for text in ["", "mem:1G", "sim", "model:cn=none"] {
            assert!(text.parse::<PoolLocation>().is_err(), "{text}");
        }
    }
}
