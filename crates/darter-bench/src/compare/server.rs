//! The server that some indexes need beside the memory, in whatever environment they run: its
//! procedures run in the calling task on a pool of this process, and on the cores of the memory
//! node on a modelled cluster. Memory nodes in processes of their own run it if they are told to.

use super::variants::{Adjusts, Variant};
use crate::BenchError;
use crate::index_target::from_index;
use darter::{DefaultFabric, IndexError, PoolError};
use darter_baselines::XStoreService;
use darter_fabric::{CallFault, FabricError, Model, Provider};
use darter_pool::Client;

/// The memory node that holds the leaves of an index with a server.
const NODE: u8 = 0;

/// Gives an index's server a place beside the memory, where the provider can run it.
///
/// # Errors
/// Those of the fabric.
pub(crate) fn serve<I: Adjusts>(provider: Provider) -> Result<Provider, BenchError> {
    match &provider {
        Provider::Model(model) => Ok(Provider::Model(serve_model::<I>(model)?)),
        Provider::Local(local) if I::HAS_SERVER => {
            let served = local.with_procedures(NODE, XStoreService::new(&provider).procedures());
            Ok(Provider::Local(served.map_err(darter::Error::from)?))
        }
        _ => Ok(provider),
    }
}

/// Gives an index's server the cores of a modelled memory node.
///
/// # Errors
/// Those of the fabric.
pub(crate) fn serve_model<I: Adjusts>(model: &Model) -> Result<Model, BenchError> {
    if !I::HAS_SERVER {
        return Ok(model.clone());
    }
    let service = XStoreService::new(&Provider::Model(model.clone()));
    Ok(model.with_procedures(NODE, service.procedures()).map_err(darter::Error::from)?)
}

/// Has the server of an index begin, before anything is measured.
///
/// # Errors
/// [`BenchError::Usage`] if nobody runs it; those of the index.
pub(crate) async fn begin<I: Adjusts>(
    variant: &Variant,
    index: &I,
    client: &mut Client<DefaultFabric>,
) -> Result<(), BenchError> {
    if !I::HAS_SERVER {
        return Ok(());
    }
    index.maintain(client).await.map_err(|error| {
        let is_alone = called_nobody(&error);
        if is_alone { BenchError::Usage(without_server(variant)) } else { from_index(error) }
    })
}

/// Whether a call has found nobody to run it.
fn called_nobody(error: &IndexError) -> bool {
    let (IndexError::Fabric(error) | IndexError::Pool(PoolError::Fabric(error))) = error else {
        return false;
    };
    let FabricError::Call(error) = error else { return false };
    matches!(error.fault, CallFault::NoServer | CallFault::Unknown)
}

/// What to do where an index has no server.
pub(crate) fn without_server(variant: &Variant) -> String {
    format!(
        "{} needs its server beside the memory, and these memory nodes run none; start node {NODE} with \
         `darter memnode --serve xstore`, or measure on a pool of this process or a modelled cluster",
        variant.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{IndexChoice, VARIANTS};
    use darter::{OrderedIndex, block_on};
    use darter_baselines::{XStore, XStoreOptions};
    use darter_fabric::Local;

    #[test]
    fn indexes_with_a_server_are_those_that_call() {
        let served: Vec<_> = VARIANTS.iter().filter(|variant| variant.has_server).collect();
        assert!(!served.is_empty() && served.iter().all(|variant| variant.name.starts_with("xstore")));
        assert!(without_server(served[0]).contains("modelled cluster"));
    }

    #[test]
    fn without_its_server_an_index_says_what_to_do() {
        let memory = Provider::Local(Local::memory(64 << 20, 1).unwrap());
        let pool = super::super::environment::create(memory).unwrap();
        let IndexChoice(variant) = "xstore".parse().unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(XStore::create(&mut client, XStoreOptions::default())).unwrap();
        let error = block_on(begin(variant, &index, &mut client)).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("xstore needs its server"), "{error}");
    }
}
