//! `FUNCTION DUMP` and `FUNCTION RESTORE`: all libraries of functions in one payload, which is Redis's.

use super::evaluation::in_transaction;
use super::functions::{add, directory, library_name, set_directory};
use crate::call::Call;
use crate::fault::Fault;
use crate::rdb::{NoLibraries, dumped_libraries, libraries_of};

/// `FUNCTION DUMP`.
pub(super) async fn dump(call: &mut Call<'_>) -> Result<(), Fault> {
    in_transaction(call, async |call| {
        let mut codes = Vec::new();
        for name in directory(call).await?.keys() {
            codes.extend(call.keys.library(name).await?);
        }
        call.reply.bulk(&dumped_libraries(&codes));
        call.limit()?;
        Ok(None)
    })
    .await
}

/// What happens to the libraries that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// They stay, and none may have the name of a restored one.
    Append,
    /// All are removed.
    Flush,
    /// Those with the names of restored ones are removed.
    Replace,
}

impl Policy {
    fn parse(word: &[u8]) -> Result<Self, Fault> {
        match &word.to_ascii_lowercase()[..] {
            b"append" => Ok(Self::Append),
            b"flush" => Ok(Self::Flush),
            b"replace" => Ok(Self::Replace),
            _ => Err(Fault::said(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            )),
        }
    }
}

/// `FUNCTION RESTORE payload [APPEND|FLUSH|REPLACE]`: all libraries, or none.
pub(super) async fn restore(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let policy = args.from(3).next().map_or(Ok(Policy::Append), Policy::parse)?;
    let codes = libraries_of(args.get(2)).map_err(|why| {
        Fault::said(match why {
            NoLibraries::Unverified => "ERR DUMP payload version or checksum are wrong",
            NoLibraries::OtherType => "ERR given type is not a function",
            NoLibraries::Damaged => "ERR Failed loading library data",
        })
    })?;
    in_transaction(call, async |call| {
        let mut libraries = directory(call).await?;
        if policy == Policy::Flush {
            for name in std::mem::take(&mut libraries).keys() {
                call.keys.set_library(name, None).await?;
            }
        }
        for code in &codes {
            let name = library_name(code)?;
            if policy != Policy::Replace && libraries.contains_key(&name) {
                return Err(Fault::said(format!("ERR Library {name} already exists")));
            }
            add(call, &mut libraries, code, policy == Policy::Replace).await?;
        }
        set_directory(call, &libraries).await?;
        call.reply.ok();
        Ok(None)
    })
    .await
}
