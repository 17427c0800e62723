//! Tokens and certificates that change while a node serves: no client is refused, sessions stay, and
//! bad files change nothing.

use crate::support::authority::{Authority, Certified, LATER};
use crate::support::gate::gated;
use crate::support::{Node, connect, connect_as, get, until, value};
use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::wire::{ClientTls, IdentityFiles, NodeTls, Secrets};
use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, Tcp, TcpOptions, block_on};
use darter_memnode::{MemNodeOptions, serve_metrics};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WORD: GlobalAddr = GlobalAddr::new(0, 64);

/// Adds 1 to the word.
fn add(endpoint: &mut TcpEndpoint) -> Result<(), FabricError> {
    let mut batch = endpoint.batch();
    batch.faa(WORD, 1);
    block_on(endpoint.submit(batch)).map(|done| endpoint.recycle(done))
}

fn read(endpoint: &mut TcpEndpoint) -> u64 {
    let mut batch = endpoint.batch();
    let word = batch.read(WORD, 1);
    let done = block_on(endpoint.submit(batch)).unwrap();
    let found = done.words(word)[0];
    endpoint.recycle(done);
    found
}

fn with_token(path: &Path) -> TcpOptions {
    TcpOptions { token: Secrets::from_file(path, "token").unwrap(), ..TcpOptions::default() }
}

/// Sets a flag when it is dropped, also by a panic, so that no thread goes on for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `steps` while threads open sessions with these options, one after another, and add in each.
/// `steps` gets a function that waits until each thread has opened sessions that began after the
/// call.
fn under_load(node: &Node, options: &TcpOptions, steps: impl FnOnce(&dyn Fn())) {
    const THREADS: usize = 2;
    let opened: [AtomicU64; THREADS] = Default::default();
    let ends = AtomicBool::new(false);
    let mut watcher = connect_as(&[node], options.clone()).unwrap().endpoint().unwrap();
    let before = read(&mut watcher);
    std::thread::scope(|scope| {
        for opened in &opened {
            let ends = &ends;
            scope.spawn(move || {
                while !ends.load(Ordering::Acquire) {
                    let fabric = connect_as(&[node], options.clone()).unwrap();
                    let mut endpoint = fabric.endpoint().unwrap();
                    add(&mut endpoint).unwrap();
                    opened.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let settle = || {
            let before = opened.each_ref().map(|count| count.load(Ordering::Acquire));
            until("each thread has opened two sessions", || {
                opened.iter().zip(before).all(|(count, before)| count.load(Ordering::Acquire) >= before + 2)
            });
        };
        let _ends = Ends(&ends);
        settle();
        steps(&settle);
    });
    let total: u64 = opened.iter().map(|count| count.load(Ordering::Acquire)).sum();
    assert_eq!(read(&mut watcher) - before, total, "every operation took effect once");
}

#[test]
fn a_token_changes_under_load_and_no_client_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let [of_node, of_client] = ["node", "client"].map(|name| directory.path().join(name));
    let write = |path: &Path, tokens: &str| std::fs::write(path, tokens).unwrap();
    write(&of_node, "old\n");
    write(&of_client, "old\n");
    let token = Secrets::from_file(&of_node, "token").unwrap();
    let mut node = Node::small(MemNodeOptions { token, ..MemNodeOptions::default() });
    let options = with_token(&of_client);
    let mut early = connect_as(&[&node], options.clone()).unwrap().endpoint().unwrap();
    add(&mut early).unwrap();
    under_load(&node, &options, |settle| {
        assert!(connect(&[&node], b"new").is_err());
        write(&of_node, "old\nnew\n");
        connect(&[&node], b"new").unwrap();
        settle();
        write(&of_client, "new\nold\n");
        settle();
        write(&of_node, "new\n");
        settle();
        let refused = connect(&[&node], b"old").unwrap_err().to_string();
        assert!(refused.contains("credentials"), "{refused}");
    });
    add(&mut early).unwrap();
    assert_eq!(node.end().refused, 2);
}

#[test]
fn a_session_reconnects_with_the_new_token() {
    let directory = tempfile::tempdir().unwrap();
    let [of_node, of_client] = ["node", "client"].map(|name| directory.path().join(name));
    std::fs::write(&of_node, "old").unwrap();
    std::fs::write(&of_client, "old").unwrap();
    let token = Secrets::from_file(&of_node, "token").unwrap();
    let node = Node::small(MemNodeOptions { token, ..MemNodeOptions::default() });
    let (address, gate) = gated(node.address);
    let fabric = Tcp::connect(&[address.to_string()], with_token(&of_client)).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    add(&mut endpoint).unwrap();
    std::fs::write(&of_node, "new").unwrap();
    gate.hang_up();
    // Its token is refused now.
    until("the connection is lost and refused", || {
        add(&mut endpoint).is_err_and(|error| error.to_string().contains("credentials"))
    });
    std::fs::write(&of_client, "new").unwrap();
    until("it is connected again", || add(&mut endpoint).is_ok());
}

#[test]
fn certificates_are_renewed_under_load() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let (certificate, key, ca) = (file("node.pem"), file("node.key"), file("ca.pem"));
    let install = |from: &Certified| {
        std::fs::copy(&from.certificate, &certificate).unwrap();
        std::fs::copy(&from.key, &key).unwrap();
    };
    install(&first.sign("127.0.0.1", LATER));
    std::fs::write(&ca, first.pem()).unwrap();
    let identity = IdentityFiles { certificate: &certificate, key: &key };
    // Clients show the same certificate.
    let tls = NodeTls::from_files(identity, Some(&ca)).unwrap();
    let node = Node::small(MemNodeOptions { tls: Some(tls), ..MemNodeOptions::default() });
    let metrics = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let credential = |metric: &str| {
        let page = get(metrics.address(), "/metrics");
        let line = page.lines().find(|line| line.starts_with(&format!("darter_memnode_{metric}{{")));
        let line = line.unwrap_or_else(|| panic!("{metric} in\n{page}"));
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64
    };
    let speaking = |ca: &Path| TcpOptions {
        tls: Some(ClientTls::from_files(ca, None).unwrap()),
        ..TcpOptions::default()
    };
    let options = TcpOptions {
        tls: Some(ClientTls::from_files(&ca, Some(identity)).unwrap()),
        ..TcpOptions::default()
    };
    // The end of the year 3000.
    assert_eq!(credential("certificate_expiry_timestamp_seconds"), 32_535_129_600);
    let mut early = connect_as(&[&node], options.clone()).unwrap().endpoint().unwrap();
    under_load(&node, &options, |settle| {
        let loads = || credential("credential_loads_total");
        let changed = |before: u64| until("the node has read it", || loads() > before);
        // The same CA.
        let before = loads();
        install(&first.sign("127.0.0.1", 3001));
        changed(before);
        settle();
        assert_eq!(credential("certificate_expiry_timestamp_seconds"), 32_566_665_600);
        // Another CA, which all trust before the first certificate that it has signed is in use.
        let before = loads();
        std::fs::write(&ca, first.pem() + &second.pem()).unwrap();
        changed(before);
        settle();
        let before = loads();
        install(&second.sign("127.0.0.1", LATER));
        changed(before);
        settle();
        assert!(connect_as(&[&node], speaking(&first.ca())).is_err(), "the node has another certificate");
        let before = loads();
        std::fs::write(&ca, second.pem()).unwrap();
        changed(before);
        settle();
        let old = first.sign("a client", LATER);
        let old = ClientTls::from_files(&second.ca(), Some(old.files())).unwrap();
        let old = TcpOptions { tls: Some(old), ..TcpOptions::default() };
        assert!(connect_as(&[&node], old).is_err(), "the node trusts the new CA only");
    });
    add(&mut early).unwrap();
}

#[test]
fn files_that_cannot_be_used_change_nothing() {
    let authority = Authority::new("one");
    let (good, other) = (authority.sign("127.0.0.1", LATER), authority.sign("other", LATER));
    let token = authority.write("token", "open sesame\n");
    let tls = NodeTls::from_files(good.files(), None).unwrap();
    let options = MemNodeOptions {
        token: Secrets::from_file(&token, "token").unwrap(),
        tls: Some(tls),
        ..MemNodeOptions::default()
    };
    let node = Node::small(options);
    let metrics = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let label = |what: &str, files: &[&Path]| {
        let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        format!("{{what=\"{what}\",files=\"{}\"}}", files.join(", "))
    };
    let of_token = label("token", &[&token]);
    let of_tls = label("certificate", &[&good.certificate, &good.key]);
    let count = |metric: &str, label: &str| {
        value(&get(metrics.address(), "/metrics"), &format!("darter_memnode_credential_{metric}{label}"))
    };
    let speaks = || {
        let tls = Some(authority.client(None));
        connect_as(&[&node], TcpOptions { token: "open sesame".into(), tls, ..TcpOptions::default() })
            .unwrap();
    };
    let right_key = std::fs::read(&good.key).unwrap();
    let spoil: [(&Path, &[u8]); 4] = [
        (&token, b""),
        (&token, &[b'x'; 300]),
        (&good.key, b"no key"),
        (&good.key, &std::fs::read(&other.key).unwrap()),
    ];
    for (at, (path, bytes)) in spoil.into_iter().enumerate() {
        let (label, failures) = if at < 2 { (&of_token, at + 1) } else { (&of_tls, at - 1) };
        std::fs::write(path, bytes).unwrap();
        until("the failure is counted", || count("failures_total", label) == failures as u64);
        assert_eq!((count("failing", label), count("loads_total", label)), (1, 1));
        speaks();
    }
    // On request, the node tries again.
    node.stop.ask_to_reload();
    until("it has tried again", || count("failures_total", &of_token) == 3);
    std::fs::remove_file(&token).unwrap();
    until("an absent file is a failure", || count("failures_total", &of_token) == 4);
    speaks();
    std::fs::write(&token, "open sesame\nanother\n").unwrap();
    std::fs::write(&good.key, right_key).unwrap();
    until("the token is read", || count("failing", &of_token) == 0);
    until("the key is read", || count("failing", &of_tls) == 0);
    speaks();
}
