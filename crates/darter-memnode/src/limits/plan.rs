//! The file of limits: TOML with the tenants, their tokens and what they may do in a second.

use darter_fabric::ByteSize;
use darter_fabric::wire::{Content, Credential, Loaded, TOKEN_BYTES_MAX, Watched};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of a file of limits.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of tenants.
const TENANTS_MAX: usize = 1000;
/// Minimum rates. Below them, one frame would delay the next by more than the ten seconds after
/// which a client gives up the node.
const VERBS_MIN: u64 = 1000;
const BYTES_MIN: u64 = 1 << 20;
/// The tenant of sessions that show the node's own token.
pub(super) const DEFAULT: &str = "default";

/// Why a file of limits cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The file cannot be read.
    #[error("{}: cannot read the limits: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file's contents cannot be used.
    #[error("{}: cannot use the limits: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// Limits on the load of sessions and tenants, from a file that is read again when it changes.
#[derive(Clone, Debug)]
pub struct Limits(Watched<Arc<Plan>>);

impl Limits {
    /// Reads limits from a file of TOML:
    ///
    /// ```toml
    /// [session]                       # of each session, whatever its token
    /// verbs_per_second = 100_000
    ///
    /// [[tenant]]                      # of all sessions together that show one of these tokens
    /// name = "reports"
    /// tokens = ["yGfX2…"]
    /// verbs_per_second = 10_000
    /// bytes_per_second = "20MiB"
    /// read_only = true                # these sessions may not change data
    /// ```
    ///
    /// A tenant named `default`, without tokens, is that of the sessions with the node's own token.
    ///
    /// # Errors
    /// Fails if the file cannot be read or used.
    pub fn from_file(path: &Path) -> Result<Self, LimitsError> {
        let unreadable = |path: &Path, source| LimitsError::Read { path: path.to_owned(), source };
        let load = |contents: &[Content]| {
            let [Content { path, bytes }] = contents else { unreachable!("one file") };
            let plan = Plan::parse(bytes).map_err(|why| LimitsError::Unfit { path: path.clone(), why })?;
            Ok(Loaded { value: Arc::new(plan), expiries: Vec::new() })
        };
        Watched::new("limits", vec![path.to_owned()], FILE_BYTES_MAX, unreadable, load).map(Self)
    }

    /// Returns the handle to the file.
    pub fn credential(&self) -> Credential {
        self.0.credential()
    }

    pub(super) fn current(&self) -> Arc<Plan> {
        Arc::clone(&self.0.current())
    }
}

/// What is allowed in a second; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) verbs: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// A tenant as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TenantPlan {
    pub(super) name: String,
    pub(super) tokens: Vec<Vec<u8>>,
    pub(super) rates: Rates,
    /// Whether its sessions may only read.
    pub(super) reads_only: bool,
}

/// The content of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) session: Rates,
    pub(super) tenants: Vec<TenantPlan>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    #[serde(default)]
    session: RatesText,
    #[serde(default)]
    tenant: Vec<TenantText>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatesText {
    verbs_per_second: Option<u64>,
    bytes_per_second: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantText {
    name: String,
    #[serde(default)]
    tokens: Vec<String>,
    verbs_per_second: Option<u64>,
    bytes_per_second: Option<String>,
    #[serde(default)]
    read_only: bool,
}

impl RatesText {
    fn parse(self) -> Result<Rates, String> {
        let bytes = self.bytes_per_second.map(|text| {
            text.parse::<ByteSize>().map_err(|error| format!("bytes_per_second = \"{text}\": {error}"))
        });
        let bytes = bytes.transpose()?.map(|size| size.0);
        if self.verbs_per_second.is_some_and(|verbs| verbs < VERBS_MIN)
            || bytes.is_some_and(|bytes| bytes < BYTES_MIN)
        {
            return Err(format!(
                "a limit must be at least {VERBS_MIN} verbs_per_second and {} bytes_per_second",
                ByteSize(BYTES_MIN)
            ));
        }
        Ok(Rates { verbs: self.verbs_per_second, bytes })
    }
}

impl Plan {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let PlanText { session, tenant } = toml::from_str(text).map_err(|error| error.to_string())?;
        if tenant.len() > TENANTS_MAX {
            return Err(format!("{} tenants; a file has at most {TENANTS_MAX}", tenant.len()));
        }
        let (mut names, mut known) = (BTreeSet::new(), BTreeSet::new());
        let mut tenants = Vec::new();
        for TenantText { name, tokens, verbs_per_second, bytes_per_second, read_only } in tenant {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.is_empty() || name.len() > 64 || !name.bytes().all(is_word) {
                return Err(format!(
                    "`{}` is not a name of a tenant: use letters, digits, -, _ and .",
                    name.escape_debug()
                ));
            }
            if !names.insert(name.clone()) {
                return Err(format!("two tenants are named `{name}`"));
            }
            if tokens.is_empty() != (name == DEFAULT) {
                return Err(format!(
                    "tenant `{name}`: the tenant `{DEFAULT}` has the node's own tokens, each other one needs `tokens`"
                ));
            }
            if read_only && name == DEFAULT {
                return Err(format!(
                    "tenant `{DEFAULT}` cannot be read-only: its tokens are those of --token-file; give clients that may \
                     only read the tokens of another tenant, or of --read-only-token-file"
                ));
            }
            for token in &tokens {
                if !(1..=TOKEN_BYTES_MAX).contains(&token.len()) {
                    return Err(format!("tenant `{name}`: a token must have 1 to {TOKEN_BYTES_MAX} bytes"));
                }
                if !known.insert(token.clone()) {
                    return Err(format!(
                        "tenant `{name}`: its token is that of another tenant, or is there twice"
                    ));
                }
            }
            let rates = RatesText { verbs_per_second, bytes_per_second }.parse();
            let rates = rates.map_err(|why| format!("tenant `{name}`: {why}"))?;
            let tokens = tokens.into_iter().map(String::into_bytes).collect();
            tenants.push(TenantPlan { name, tokens, rates, reads_only: read_only });
        }
        let session = session.parse().map_err(|why| format!("session: {why}"))?;
        Ok(Self { session, tenants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_tenants_and_rates() {
        let plan = Plan::parse(
            b"[session]\nverbs_per_second = 5_000\n[[tenant]]\nname = 'default'\nbytes_per_second = '20MiB'\n\
              [[tenant]]\nname = 'reports'\ntokens = ['a', 'b']\nread_only = true\n",
        )
        .unwrap();
        assert_eq!(plan.session, Rates { verbs: Some(5000), bytes: None });
        assert_eq!(plan.tenants[0].rates, Rates { verbs: None, bytes: Some(20 << 20) });
        assert_eq!(plan.tenants[1].tokens, [b"a", b"b"]);
        assert_eq!([&plan.tenants[0], &plan.tenants[1]].map(|tenant| tenant.reads_only), [false, true]);
        assert_eq!(Plan::parse(b""), Ok(Plan::default()));
    }

    #[test]
    fn a_bad_file_is_refused_with_its_reason() {
        for (text, why) in [
            ("session = 5", "session"),
            ("[sessions]", "sessions"),
            ("[session]\nverbs_per_second = 0", "at least 1000 verbs_per_second"),
            ("[session]\nbytes_per_second = 'ten'", "ten"),
            ("[session]\nbytes_per_second = '4KiB'", "at least"),
            ("[[tenant]]\nname = 'a'", "needs `tokens`"),
            ("[[tenant]]\nname = 'default'\ntokens = ['x']", "the node's own tokens"),
            ("[[tenant]]\nname = 'default'\nread_only = true", "cannot be read-only"),
            ("[[tenant]]\nname = 'a b'\ntokens = ['x']", "not a name"),
            ("[[tenant]]\nname = 'a'\ntokens = ['']", "1 to 256 bytes"),
            (
                "[[tenant]]\nname = 'a'\ntokens = ['x']\n[[tenant]]\nname = 'b'\ntokens = ['x']",
                "another tenant",
            ),
            ("[[tenant]]\nname = 'a'\ntokens = ['x']\n[[tenant]]\nname = 'a'\ntokens = ['y']", "two tenants"),
        ] {
            let error = Plan::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Plan::parse(b"\xff").is_err());
    }
}
