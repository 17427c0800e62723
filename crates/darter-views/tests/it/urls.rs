//! URLs that are not valid names of stores.

use darter_views::{StoreError, ViewStore};

#[test]
fn what_names_no_store_is_refused_with_the_reason() {
    for (url, why) in [
        ("", "must be `file:PATH`"),
        ("file:", "no path"),
        ("zk://a:1/p", "unknown scheme `zk`"),
        ("etcd://a:2379", "/PREFIX"),
        ("etcd://a:2379/", "letters"),
        ("etcd://a:2379/p q", "letters"),
        ("etcd:///p", "HOST:PORT"),
        ("etcd://a/p", "HOST:PORT"),
        ("etcd://a:70000/p", "HOST:PORT"),
        ("etcd://a:1,,b:2/p", "HOST:PORT"),
        ("etcd://u:p@a:1/p", "HOST:PORT"),
        ("etcd://a:1/p?user=u", "go together"),
        ("etcd://a:1/p?user=u&password-file=/nonexistent", "No such file"),
        ("etcd://a:1/p?ca=/nonexistent", "No such file"),
        ("etcd://a:1/p?ca=/dev/null", "no certificate"),
        ("etcd://a:1/p?timeout-ms=0", "1 to"),
        ("etcd://a:1/p?timeout-ms=1e9", "1 to"),
        ("etcd://a:1/p?color=red", "`color` is not known"),
        ("etcd://a:1/p?color", "no value"),
        ("consul://a:1/p?user=u", "`user` is not known"),
        ("kubernetes://Name/p?server=a:1", "lower-case"),
        ("kubernetes://n/p/q?server=a:1&token-file=/dev/null", "lower-case"),
        ("kubernetes://n/p?server=a:1&token-file=/nonexistent", "No such file"),
        ("kubernetes://n/p?server=a:1&token-file=/dev/null", "one token"),
        ("kubernetes://n/p?server=a:1&token-file=/dev/zero", "one token"),
        ("consul://a:1/p?token-file=/proc/self/mounts", "one token"),
        ("kubernetes://n/p", "ca.crt"),
    ] {
        match ViewStore::open(url, 0).map(drop) {
            Err(error @ StoreError::Url { .. }) => assert!(error.to_string().contains(why), "{url}: {error}"),
            other => panic!("{url}: {other:?}"),
        }
    }
}
