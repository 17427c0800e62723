//! The commands of scripts and functions in a gateway that was built without them.

use crate::call::Call;
use crate::fault::Fault;
use crate::table::CommandId;
use std::future::{Ready, ready};

/// Every command of scripts and functions.
pub(super) fn run(_: &mut Call<'_>, _: CommandId) -> Ready<Result<(), Fault>> {
    ready(Err(Fault::said("ERR this gateway was built without scripts (the feature `scripts`)")))
}
