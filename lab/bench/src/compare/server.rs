//! The server that some indexes need next to the memory, in every environment: its procedures run
//! in the calling task on a pool of this process, and on the cores of the memory nodes on a
//! modelled cluster. Each node has a separate server for the keys that it holds. Memory nodes in
//! separate processes run it if they are configured to.

use super::variants::{Adjusts, Variant};
use crate::index_target::from_index;
use darter::engine::StoreFabric;
use darter::{IndexError, PoolError};
use darter_baselines::XStoreService;
use darter_bench::BenchError;
use darter_fabric::{CallFault, Fabric, FabricError, Procedures, Provider};
use darter_model::Model;
use darter_pool::Client;

/// Installs an index's servers next to the memory, if the provider can run them.
///
/// # Errors
/// Fails if the fabric fails.
pub(crate) fn serve<I: Adjusts>(provider: Provider) -> Result<Provider, BenchError> {
    match &provider {
        Provider::Local(local) if I::HAS_SERVER => {
            let mut served = local.clone();
            for (node, procedures) in servers(&provider) {
                served = served.with_procedures(node, procedures).map_err(darter::Error::from)?;
            }
            Ok(Provider::Local(served))
        }
        _ => Ok(provider),
    }
}

/// Returns the procedures of each memory node, with a server that reaches the memory through this
/// provider.
fn servers(provider: &Provider) -> impl Iterator<Item = (u8, Procedures)> + '_ {
    (0..provider.nodes() as u8).map(|node| (node, XStoreService::new(provider).procedures()))
}

/// Installs an index's servers on the cores of modelled memory nodes.
///
/// # Errors
/// Fails if the fabric fails.
pub(crate) fn serve_model<I: Adjusts>(model: &Model) -> Result<Model, BenchError> {
    if !I::HAS_SERVER {
        return Ok(model.clone());
    }
    let mut served = model.clone();
    for (node, procedures) in servers(&Provider::foreign(model.clone())) {
        served = served.with_procedures(node, procedures).map_err(darter::Error::from)?;
    }
    Ok(served)
}

/// Starts the server of an index, before anything is measured.
///
/// # Errors
/// Fails with [`BenchError::Usage`] if no memory node runs it, or if the index fails.
pub(crate) async fn begin<I: Adjusts>(
    variant: &Variant,
    index: &I,
    client: &mut Client<StoreFabric>,
) -> Result<(), BenchError> {
    if !I::HAS_SERVER {
        return Ok(());
    }
    index.maintain(client).await.map_err(|error| {
        let is_alone = called_nobody(&error);
        if is_alone { BenchError::Usage(without_server(variant)) } else { from_index(error) }
    })
}

/// Whether a call failed because no memory node runs procedures.
fn called_nobody(error: &IndexError) -> bool {
    let (IndexError::Fabric(error) | IndexError::Pool(PoolError::Fabric(error))) = error else {
        return false;
    };
    let FabricError::Call(error) = error else { return false };
    matches!(error.fault, CallFault::NoServer | CallFault::Unknown)
}

/// Returns what to do if an index has no server.
pub(crate) fn without_server(variant: &Variant) -> String {
    format!(
        "{} needs its server next to the memory, and these memory nodes run none; start them with \
         `darter-lab memnode --serve xstore`, or measure on a pool of this process or a modelled cluster",
        variant.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{IndexChoice, VARIANTS};
    use crate::datasets::Dense;
    use crate::index_target::IndexTarget;
    use darter::block_on;
    use darter::engine::OrderedIndex;
    use darter_baselines::{XStore, XStoreOptions};
    use darter_bench::driver::bulk_load;
    use darter_bench::progress::Progress;
    use darter_fabric::Local;
    use std::sync::Arc;

    #[test]
    fn indexes_with_a_server_are_those_that_call() {
        let served: Vec<_> = VARIANTS.iter().filter(|variant| variant.has_server).collect();
        assert!(!served.is_empty() && served.iter().all(|variant| variant.name.starts_with("xstore")));
        assert!(without_server(served[0]).contains("modelled cluster"));
    }

    /// A bulk load gives each memory node its share of the keys, which costs no round trips.
    #[test]
    fn keys_are_on_all_nodes() {
        let memory = Provider::Local(Local::memory(64 << 20, 3).unwrap());
        let served = serve::<XStore<StoreFabric>>(memory).unwrap();
        let pool = super::super::environment::create(served).unwrap();
        let options = XStoreOptions { nodes: 0, ..XStoreOptions::default() };
        let target = IndexTarget::<XStore<StoreFabric>, _>::open("xstore", pool, options).unwrap();
        let progress = Progress::hidden(&Arc::default());
        bulk_load(&target, &Dense, 3000, 8, &progress).unwrap();
        assert_eq!(target.index.range_nodes(), [0, 1, 2]);
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
