//! Memory nodes as processes: a pool on three of them, its commands, and refusals.

use crate::common::{darter, said};
use crate::daemon::Daemon;
use darter::engine::Engine;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::Path;
use std::process::Command;

fn memnode(options: &[&str]) -> Daemon {
    Daemon::start(&[&["memnode", "--listen", "127.0.0.1:0", "--size", "64M"], options].concat())
}

#[test]
fn a_pool_over_three_memory_nodes() {
    let nodes: Vec<Daemon> = (0..3).map(|_| memnode(&[])).collect();
    let addresses: Vec<&str> = nodes.iter().map(|node| &node.address[..]).collect();
    let url = format!("tcp://{}", addresses.join(","));
    let missing = darter(&["put", "--pool", &url, "k", "v"]);
    assert!(
        !missing.status.success() && said(&missing).contains("holds no darter pool"),
        "{}",
        said(&missing)
    );
    let created = darter(&["pool", "create", "--pool", &url]);
    assert!(created.status.success() && said(&created).contains("3 memory nodes"), "{}", said(&created));
    let again = darter(&["pool", "create", "--pool", &url]);
    assert!(!again.status.success(), "{}", said(&again));
    for n in 0..20 {
        let put = darter(&["put", "--pool", &url, &format!("key-{n}"), "value"]);
        assert!(put.status.success(), "{}", said(&put));
    }
    let got = darter(&["get", "--pool", &url, "key-7"]);
    assert_eq!(String::from_utf8_lossy(&got.stdout).trim(), "value");
    let scanned = darter(&["scan", "--pool", &url]);
    assert_eq!(String::from_utf8_lossy(&scanned.stdout).lines().count(), 20, "{}", said(&scanned));
    let status = darter(&["pool", "status", "--pool", &url]);
    assert!(
        said(&status).contains(addresses[2]) && said(&status).contains("this command"),
        "{}",
        said(&status)
    );
    let check = darter(&["check", "--pool", &url]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
    // The same nodes in another order are a different pool.
    let swapped = format!("tcp://{},{},{}", addresses[1], addresses[0], addresses[2]);
    assert!(!darter(&["get", "--pool", &swapped, "key-7"]).status.success());
    drop(nodes);
    let gone = darter(&["get", "--pool", &url, "key-7"]);
    assert_eq!(gone.status.code(), Some(1), "{}", said(&gone));
}

/// Operations that need a paused node fail with a typed error, and no others are affected; when the
/// node goes on, it is used again.
#[test]
fn a_silent_memory_node_is_given_up_and_found_again() {
    use darter::TcpOptions;
    use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, Tcp, block_on};
    use rustix::process::{Pid, Signal, kill_process};
    let nodes: Vec<Daemon> = (0..2).map(|_| memnode(&[])).collect();
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    let options = TcpOptions { patience: std::time::Duration::from_millis(100), ..TcpOptions::default() };
    let fabric = Tcp::connect(&addresses, options).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let mut write = |nodes: &[u8], word: u64| {
        let mut batch = endpoint.batch();
        for &node in nodes {
            batch.write(GlobalAddr::new(node, 64), &[word]);
        }
        block_on(endpoint.submit(batch)).map(drop)
    };
    write(&[0, 1], 1).unwrap();
    let paused = Pid::from_child(&nodes[1].child);
    kill_process(paused, Signal::STOP).unwrap();
    let error = write(&[0, 1], 2).unwrap_err();
    assert!(matches!(error, FabricError::Disconnected { node: 1 }), "{error}");
    for word in 3..100 {
        write(&[0], word).unwrap();
    }
    kill_process(paused, Signal::CONT).unwrap();
    let is_back = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        write(&[1], 100).is_ok()
    });
    assert!(is_back);
    // The node has ended: now nothing is sent.
    kill_process(paused, Signal::KILL).unwrap();
    let unreachable = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        matches!(write(&[1], 101), Err(FabricError::Unreachable { node: 1 }))
    });
    assert!(unreachable);
    write(&[0], 102).unwrap();
}

#[test]
fn a_pool_grows_while_it_is_used() {
    let nodes: Vec<Daemon> = (0..2).map(|_| memnode(&[])).collect();
    let url = format!("tcp://{}", nodes[0].address);
    assert!(darter(&["pool", "create", "--pool", &url]).status.success());
    // A client that is given only the first node, and one with the nodes that the pool had at
    // first.
    let store = darter::Store::open(&url).unwrap();
    let session = store.session().unwrap();
    session.put(b"before", b"1").unwrap();
    assert_eq!(store.pool().nodes(), 1);
    let added = darter(&["pool", "add-node", "--pool", &url, &nodes[1].address]);
    assert!(added.status.success() && said(&added).contains("as memory node 1"), "{}", said(&added));
    assert!(!said(&added).contains("not reached"), "{}", said(&added));
    let is_used = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        store.pool().nodes() == 2
    });
    assert!(is_used);
    // More than fits on the first node.
    let value = vec![7; 100_000];
    for n in 0..700_u32 {
        session.put(n.to_be_bytes(), &value).unwrap();
    }
    let usage = store.usage().unwrap();
    assert!(usage.nodes[1].blocks > usage.nodes[1].free, "{usage:?}");
    // Another process, by the first node's name.
    let scanned = darter(&["scan", "--pool", &url, "--keys-only"]);
    assert_eq!(String::from_utf8_lossy(&scanned.stdout).lines().count(), 701, "{}", said(&scanned));
    let again = darter(&["pool", "add-node", "--pool", &url, &nodes[1].address]);
    assert!(!again.status.success() && said(&again).contains("already"), "{}", said(&again));
    let nowhere = darter(&["pool", "add-node", "--pool", &url, "127.0.0.1:1"]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", said(&nowhere));
    session.put(b"after", b"2").unwrap();
    drop((session, store));
    let check = darter(&["check", "--pool", &url]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}

#[test]
fn memory_nodes_require_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "open sesame\n").unwrap();
    let token = token.to_str().unwrap();
    let node = memnode(&["--token-file", token]);
    let url = format!("tcp://{}", node.address);
    let refused = darter(&["pool", "create", "--pool", &url]);
    assert!(!refused.status.success() && said(&refused).contains("credentials"), "{}", said(&refused));
    assert!(darter(&["pool", "create", "--pool", &url, "--token-file", token]).status.success());
    assert!(darter(&["put", "--pool", &url, "--token-file", token, "k", "v"]).status.success());
    let absent = directory.path().join("absent");
    let unread = darter(&["get", "--pool", &url, "--token-file", absent.to_str().unwrap(), "k"]);
    assert_eq!(unread.status.code(), Some(2), "{}", said(&unread));
}

#[test]
fn tenants_of_a_node_have_their_own_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
        directory.path().join(name).to_str().unwrap().to_owned()
    };
    let (token, other) = (file("token", "hare\n"), file("other", "tortoise\n"));
    let bad = file("bad", "[[tenant]]\nname = 'slow'\n");
    let node = ["memnode", "--listen", "127.0.0.1:0", "--size", "16M"];
    for (options, why) in [
        (&["--limits", &bad][..], "--token-file"),
        (&["--limits", &bad, "--token-file", &token], "needs `tokens`"),
        (&["--limits", "absent.toml", "--token-file", &token], "absent.toml: cannot read the limits"),
    ] {
        let refused = darter(&[&node[..], options].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(said(&refused).contains(why), "{}", said(&refused));
    }
    let limits =
        file("limits.toml", "[[tenant]]\nname = 'slow'\ntokens = ['tortoise']\nverbs_per_second = 20_000\n");
    let node = memnode(&["--token-file", &token, "--limits", &limits]);
    let url = format!("tcp://{}", node.address);
    assert!(darter(&["pool", "create", "--pool", &url, "--token-file", &token]).status.success());
    let put = darter(&["put", "--pool", &url, "--token-file", &other, "k", "v"]);
    assert!(put.status.success(), "{}", said(&put));
    let refused = darter(&["get", "--pool", &url, "k"]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("credentials"), "{}", said(&refused));
}

/// Writes a CA's certificate, and certificates signed by it for each of `names`, with their keys.
fn certify(directory: &Path, names: &[&str]) {
    let write = |name: String, content: String| std::fs::write(directory.join(name), content).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    write("ca.pem".into(), ca.pem());
    for &name in names {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        write(format!("{name}.pem"), params.signed_by(&key, &ca).unwrap().pem());
        write(format!("{name}.key"), key.serialize_pem());
    }
}

#[test]
fn tls_and_token_together() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path(), &["127.0.0.1", "client"]);
    std::fs::write(directory.path().join("token"), "open sesame\n").unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (ca, token, node_pem, node_key) =
        (file("ca.pem"), file("token"), file("127.0.0.1.pem"), file("127.0.0.1.key"));
    let asked = ["--tls-client-ca", &ca, "--token-file", &token];
    let node = memnode(&[&["--tls-cert", &node_pem, "--tls-key", &node_key][..], &asked].concat());
    let url = format!("tcp://{}", node.address);
    let with = |options: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
        command.args(arguments).env("DARTER_POOL", &url);
        command.envs(options.iter().map(|&(name, value)| (name, file(value)))).output().unwrap()
    };
    let all = [
        ("DARTER_TLS_CA", "ca.pem"),
        ("DARTER_TLS_CERT", "client.pem"),
        ("DARTER_TLS_KEY", "client.key"),
        ("DARTER_TOKEN_FILE", "token"),
    ];
    for arguments in [&["pool", "create"][..], &["put", "pear", "green"]] {
        let output = with(&all, arguments);
        assert!(output.status.success(), "{}", said(&output));
    }
    let got = with(&all, &["get", "pear"]);
    assert_eq!(String::from_utf8_lossy(&got.stdout).trim(), "green", "{}", said(&got));
    // Each of the three is required, and the error names the missing one.
    for (missing, code, what) in [
        (&all[3..], 1, "speaks TLS"),
        (&all[..1], 1, "CertificateRequired"),
        (&all[..3], 1, "wrong token"),
        (&all[1..], 2, "--tls-ca"),
        (&[all[0], all[1]], 2, "--tls-key"),
    ] {
        let output = with(missing, &["get", "pear"]);
        assert_eq!(output.status.code(), Some(code), "{missing:?}: {}", said(&output));
        assert!(said(&output).contains(what), "{missing:?}: {}", said(&output));
    }
    let listen = ["memnode", "--listen", "127.0.0.1:0", "--size", "1M"];
    for (name, pem, key) in [
        ("absent", "absent", "client.key"),
        ("client.key", "127.0.0.1.pem", "client.key"),
        ("token", "client.pem", "token"),
    ] {
        let (pem, key) = (file(pem), file(key));
        let output = darter(&[&listen[..], &["--tls-cert", &pem, "--tls-key", &key]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(&file(name)), "{}", said(&output));
    }
    let absent = with(&[("DARTER_TLS_CA", "absent")], &["get", "pear"]);
    assert_eq!(absent.status.code(), Some(2), "{}", said(&absent));
    // TLS with RDMA protects neither keys nor values, so both ends require an explicit option.
    let (pem, key) = (file("client.pem"), file("client.key"));
    let rdma = ["--tls-cert", &pem, "--tls-key", &key, "--rdma", "rxe0"];
    let rdma_url = format!("rdma://{}?device=rxe0", node.address);
    for output in [
        darter(&[&listen[..], &rdma].concat()),
        with(&all, &["get", "--pool", &rdma_url, "pear"]),
        with(&all, &["serve", "--resp", "127.0.0.1:0", "--pool", &rdma_url]),
    ] {
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("nothing encrypts what RDMA carries"), "{}", said(&output));
        assert!(said(&output).contains("--rdma-in-clear"), "{}", said(&output));
    }
}

/// The counts in one line of `bench --json`: workload, operations in flight, and everything that is
/// counted by kind.
type Counted = (String, u64, Vec<(String, Vec<u64>)>);

fn bench_counts(arguments: &[&str]) -> Vec<Counted> {
    let words = ["bench", "--records", "5000", "--ops", "2000", "--seed", "3", "--verbs", "--json"];
    let output = darter(&[&words[..], arguments].concat());
    assert!(output.status.success(), "{}", said(&output));
    let count = |kind: &serde_json::Value, field: &str| {
        let ops = kind["ops"].as_f64().unwrap();
        (kind[field].as_f64().unwrap() * ops).round() as u64
    };
    let fields = ["round_trips_per_op", "verbs_per_op", "read_bytes_per_op", "write_bytes_per_op"];
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let report: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(report["not_found"], 0);
            let kinds = report["kinds"].as_object().unwrap().iter();
            let kinds = kinds.filter(|(name, _)| *name != "maintain").map(|(name, kind)| {
                let ops = kind["ops"].as_u64().unwrap();
                let counts = std::iter::once(ops).chain(fields.iter().map(|field| count(kind, field)));
                (name.clone(), counts.collect())
            });
            let workload = report["workload"].as_str().unwrap().to_owned();
            (workload, report["in_flight"].as_u64().unwrap(), kinds.collect())
        })
        .collect()
}

/// The same work has the same costs, except renewals of the lease, which are due after a quarter of
/// it: each is a WRITE of the seven words of a member, in a separate round trip.
fn assert_same_but_for_renewals(these: &[Counted], those: &[Counted]) {
    assert_eq!(these.len(), those.len());
    for (this, that) in these.iter().zip(those) {
        let names = |line: &Counted| line.2.iter().map(|(kind, _)| kind.clone()).collect::<Vec<_>>();
        assert_eq!((&this.0, this.1, names(this)), (&that.0, that.1, names(that)));
        for ((kind, ours), (_, theirs)) in this.2.iter().zip(&that.2) {
            let more: Vec<i64> = ours
                .iter()
                .zip(theirs)
                .map(|(ours, theirs)| ours.cast_signed() - theirs.cast_signed())
                .collect();
            let renewals = more[1];
            assert_eq!(more, [0, renewals, renewals, 0, renewals * 56], "{kind} of {this:?} and {that:?}");
        }
    }
}

#[test]
fn counts_over_tcp_are_those_of_a_local_pool() {
    let all = ["--workload", "load,a,b,c,d,e,f"];
    let node = memnode(&[]);
    let url = format!("tcp://{}", node.address);
    let over_tcp = bench_counts(&[&all[..], &["--pool", &url, "--create"]].concat());
    let local = bench_counts(&[&all[..], &["--pool", "mem:64M"]].concat());
    assert_eq!(over_tcp.len(), 7);
    assert_same_but_for_renewals(&over_tcp, &local);
    // A log costs time, but no verbs.
    let log = tempfile::tempdir().unwrap();
    let node = memnode(&["--durability", "log", "--log", log.path().to_str().unwrap()]);
    let durable = format!("tcp://{}?durability=log", node.address);
    let durable = bench_counts(&[&all[..], &["--pool", &durable, "--create"]].concat());
    assert_same_but_for_renewals(&durable, &local);
    // With more operations in flight, tasks may fetch data that others are fetching at the same
    // time; otherwise searches cost the same.
    let searches = ["--workload", "c", "--cache", "0", "--in-flight", "1,8,64"];
    let node = memnode(&[]);
    let url = format!("tcp://{}", node.address);
    let over_tcp = bench_counts(&[&searches[..], &["--pool", &url, "--create"]].concat());
    let local = bench_counts(&[&searches[..], &["--pool", "mem:64M"]].concat());
    assert_same_but_for_renewals(&over_tcp[..1], &local[..1]);
    for ((tcp, local), in_flight) in over_tcp.iter().zip(&local).zip([1, 8, 64]) {
        assert_eq!((tcp.1, tcp.2[0].1[0]), (in_flight, 2000));
        let round_trips = |line: &Counted| line.2[0].1[1];
        assert!(round_trips(tcp).abs_diff(round_trips(local)) <= in_flight * 4, "{tcp:?} {local:?}");
    }
    let again = darter(&["bench", "--records", "10", "--ops", "10", "--pool", &url, "--create"]);
    assert!(!again.status.success(), "{}", said(&again));
}

#[test]
fn several_processes_drive_one_pool() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "open sesame").unwrap();
    let node = memnode(&["--token-file", token.to_str().unwrap()]);
    let tcp = format!("tcp://{}", node.address);
    let file = format!("file:{}?size=64M", directory.path().join("pool").display());
    for pool in [&tcp, &file] {
        let pool = ["--pool", pool, "--create", "--token-file", token.to_str().unwrap()];
        let run = ["--workload", "c,a", "--processes", "3", "--in-flight", "4"];
        let counts = bench_counts(&[&run[..], &pool].concat());
        assert_eq!(counts.len(), 2);
        let of = |kind: &str, line: usize| {
            counts[line].2.iter().find(|(name, _)| name == kind).map_or(0, |(_, counts)| counts[0])
        };
        assert_eq!(of("get", 0), 2000);
        assert_eq!(of("get", 1) + of("update", 1), 2000);
    }
    let refused = darter(&["bench", "--processes", "2", "--workload", "d", "--pool", &tcp]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

#[test]
fn measurement_removes_its_processes_and_files() {
    let directory = tempfile::tempdir().unwrap();
    for index in ["dart", "quiver"] {
        let pool = format!("file:{}?size=64M", directory.path().join(index).display());
        let run = ["--index", index, "--records", "8", "--ops", "4000", "--processes", "2", "--check"];
        let output = darter(&[&["bench", "--workload", "a", "--pool", &pool][..], &run].concat());
        assert!(output.status.success(), "{index}: {}", said(&output));
    }
}

#[test]
fn bad_arguments_exit_with_2() {
    for arguments in [
        &["memnode", "--listen", "nowhere", "--size", "1M"][..],
        &["memnode", "--listen", "127.0.0.1:0"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--rdma", "rxe0:0"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--rdma-in-clear"],
        &["get", "--pool", "tcp://nowhere", "k"],
        &["get", "--pool", "rdma://127.0.0.1:7000", "k"],
        &["get", "--pool", "rdma://127.0.0.1:7000?device=a/b", "k"],
        &["pool", "create", "--pool", "mem:1M"],
    ] {
        let output = darter(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn commands_read_with_a_read_only_token_and_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (token, readers) = (at("token"), at("readers"));
    std::fs::write(&token, "open sesame\n").unwrap();
    std::fs::write(&readers, "read sesame\n").unwrap();
    let node = memnode(&["--token-file", &token, "--read-only-token-file", &readers]);
    let url = format!("tcp://{}", node.address);
    let run = |arguments: &[&str], token: &str| {
        darter(&[arguments, &["--pool", &url, "--token-file", token]].concat())
    };
    assert!(run(&["pool", "create"], &token).status.success());
    assert!(run(&["put", "k", "v"], &token).status.success());
    let got = run(&["get", "k"], &readers);
    assert_eq!(String::from_utf8_lossy(&got.stdout).trim(), "v", "{}", said(&got));
    let export = at("all.tsv");
    for command in
        [&["scan"][..], &["export", &export], &["stats"], &["tree"], &["check"], &["pool", "status"]]
    {
        let read = run(command, &readers);
        assert!(read.status.success(), "{command:?}: {}", said(&read));
    }
    let status = said(&run(&["pool", "status"], &readers));
    assert!(status.contains("this command, only reads"), "{status}");
    let backups = at("backups");
    for command in [
        &["put", "k", "w"][..],
        &["del", "k"],
        &["import", &export],
        &["backup", &backups],
        &["check", "--repair"],
        &["pool", "add-node", "127.0.0.1:1"],
        &["serve", "--resp", "127.0.0.1:0"],
    ] {
        let refused = run(command, &readers);
        assert_eq!(refused.status.code(), Some(1), "{command:?}: {}", said(&refused));
        assert!(said(&refused).contains("read-only"), "{command:?}: {}", said(&refused));
    }
    let kept = run(&["get", "k"], &token);
    assert_eq!(String::from_utf8_lossy(&kept.stdout).trim(), "v", "{}", said(&kept));
    let start = ["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--read-only-token-file", &readers];
    for options in [&[][..], &["--token-file", &token, "--rdma", "mlx5_0"]] {
        let refused = darter(&[&start, options].concat());
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {}", said(&refused));
    }
}
