//! Pools whose provider is not compiled in: an error that names the feature.

use darter::Store;

#[cfg(not(feature = "tcp"))]
#[test]
fn memory_nodes_need_a_feature() {
    let error = Store::open("tcp://127.0.0.1:7000").unwrap_err();
    let text = error.to_string();
    assert!(error.is_usage() && text.contains("feature `tcp`"), "{text}");
}

#[test]
fn modelled_clusters_are_refused() {
    let error = Store::open("model:preset=dart").unwrap_err();
    let text = error.to_string();
    assert!(error.is_usage(), "{text}");
    assert!(text.contains("keeps nothing") && text.contains("darter-lab compare"), "{text}");
}
