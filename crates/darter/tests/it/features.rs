//! Pools whose provider is not compiled in: an error that names the feature.

use darter::Store;

#[cfg(not(feature = "tcp"))]
#[test]
fn memory_nodes_need_a_feature() {
    let error = Store::open("tcp://127.0.0.1:7000").unwrap_err();
    let text = error.to_string();
    assert!(error.is_usage() && text.contains("feature `tcp`"), "{text}");
}

/// Modelled clusters are never a store's, whether or not the fabric has them.
#[test]
fn modelled_clusters_are_refused() {
    let error = Store::open("model:preset=dart").unwrap_err();
    let text = error.to_string();
    assert!(error.is_usage(), "{text}");
    assert!(text.contains("feature `model`") || text.contains("ends with the measurement"), "{text}");
}
