//! Views in a real Kubernetes API server, over TLS, with the account, role and binding of the
//! manifests in `deploy/kubernetes`; and in three servers of which one at a time is killed or
//! stopped.

use crate::cluster::{Cluster, Program, assert_survives_strikes, patiently};
use crate::contract::{assert_has_one_winner, assert_keeps_views, set, view};
use crate::etcd;
use darter_views::{StoreError, ViewStore};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const MANIFESTS: [&str; 2] = [
    include_str!("../../../../deploy/kubernetes/memory-group.yaml"),
    include_str!("../../../../deploy/kubernetes/gateway.yaml"),
];
/// The API that a kind of the manifests belongs to, and its name in that API.
const KINDS: [(&str, &str, &str); 7] = [
    ("Service", "api/v1", "services"),
    ("ServiceAccount", "api/v1", "serviceaccounts"),
    ("Role", "apis/rbac.authorization.k8s.io/v1", "roles"),
    ("RoleBinding", "apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ("PodDisruptionBudget", "apis/policy/v1", "poddisruptionbudgets"),
    ("StatefulSet", "apis/apps/v1", "statefulsets"),
    ("Deployment", "apis/apps/v1", "deployments"),
];

/// API servers over one etcd, and the files that they and their clients need.
struct Kubernetes {
    servers: Cluster,
    files: PathBuf,
    agent: ureq::Agent,
    _etcd: Cluster,
    _files: tempfile::TempDir,
}

impl Kubernetes {
    /// Starts them; `None`, with a message, if one of the programs is not installed. The token in
    /// the file `admin` grants all permissions.
    fn start(servers: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().to_owned();
        let agent = make_files(&files);
        let etcd = etcd::start(1)?;
        patiently(|| ViewStore::open(&etcd.url(), 0).unwrap().view());
        let (etcd_url, at) = (format!("http://{}", etcd.host(0)), files.clone());
        let arguments = Box::new(move |cluster: &Cluster, server: usize, command: &mut Command| {
            let option = |name: &str, file: &str| format!("--{name}={}", at.join(file).display());
            command
                .args(["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"])
                .args(["--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24"])
                .args([
                    format!("--secure-port={}", cluster.ports[server][0]),
                    format!("--etcd-servers={etcd_url}"),
                ])
                .args([option("tls-cert-file", "server.pem"), option("tls-private-key-file", "server.key")])
                .args([
                    "--service-account-issuer=https://darter".to_owned(),
                    option("token-auth-file", "tokens"),
                ])
                .arg(option("service-account-key-file", "accounts.pub"))
                .arg(option("service-account-signing-key-file", "accounts.key"));
        });
        let at = files.clone();
        let url = Box::new(move |hosts: &str| url_of(&at, hosts, "admin"));
        let program = Program { name: "kube-apiserver", probe: "--version", ports: 1, arguments, url };
        let servers = Cluster::start(program, servers)?;
        let kubernetes = Self { servers, files, agent, _etcd: etcd, _files: folder };
        patiently(|| kubernetes.is_ready());
        Some(kubernetes)
    }

    fn is_ready(&self) -> Result<(), StoreError> {
        let address = format!("https://{}/readyz", self.servers.host(0));
        let answer = self.agent.get(&address).header("Authorization", "Bearer admin").call();
        let not_yet = |why: String| Err(StoreError::Unreachable(why));
        match answer {
            Ok(answer) if answer.status() == 200 => Ok(()),
            Ok(answer) => not_yet(answer.status().to_string()),
            Err(error) => not_yet(error.to_string()),
        }
    }

    /// Creates an object; returns the server's response.
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let address = format!("https://{}/{path}", self.servers.host(0));
        let request = self.agent.post(&address).header("Authorization", "Bearer admin");
        let mut answer = request.header("Content-Type", "application/yaml").send(body).unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    /// Returns the URL of views for the account whose token is in this file.
    fn url(&self, account: &str) -> String {
        url_of(&self.files, &self.servers.host(0), account)
    }
}

fn url_of(files: &Path, hosts: &str, account: &str) -> String {
    let file = |name: &str| files.join(name).display().to_string();
    format!("kubernetes://default/darter?server={hosts}&ca={}&token-file={}", file("ca.pem"), file(account))
}

/// Writes keys, certificates and tokens. Returns a client that trusts the servers.
fn make_files(files: &Path) -> ureq::Agent {
    let write = |name: &str, text: &str| std::fs::write(files.join(name), text).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&key).unwrap();
    let (issuer, server) = (Issuer::new(authority, key), KeyPair::generate().unwrap());
    let named = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    write("ca.pem", &ca.pem());
    write("server.pem", &named.signed_by(&server, &issuer).unwrap().pem());
    write("server.key", &server.serialize_pem());
    let accounts = KeyPair::generate().unwrap();
    write("accounts.key", &accounts.serialize_pem());
    write("accounts.pub", &accounts.public_key_pem());
    write("tokens", "admin,admin,1,\"system:masters\"\nnobody,nobody,2\n");
    write("admin", "admin\n");
    write("nobody", "nobody\n");
    write("unknown", "unknown\n");
    let roots = RootCerts::from(vec![Certificate::from_pem(ca.pem().as_bytes()).unwrap()]);
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    ureq::Agent::config_builder().http_status_as_error(false).tls_config(tls.build()).build().into()
}

/// Creates the objects of the manifests, and writes a token of their account.
fn apply_manifests(kubernetes: &Kubernetes) {
    for manifest in MANIFESTS.iter().flat_map(|manifests| manifests.split("\n---\n")) {
        let kind = manifest.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap();
        let &(_, api, name) = KINDS.iter().find(|(known, ..)| *known == kind).unwrap();
        let (status, said) = kubernetes.post(&format!("{api}/namespaces/default/{name}"), manifest);
        if status == 404 && api.ends_with("policy/v1") {
            // Before version 1.21 its API had another name, with the same fields.
            let older = |text: &str| text.replace("policy/v1", "policy/v1beta1");
            let path = format!("{}/namespaces/default/{name}", older(api));
            assert_eq!(kubernetes.post(&path, &older(manifest)).0, 201, "{kind}");
            continue;
        }
        assert_eq!(status, 201, "{kind}: {said}");
    }
    let request =
        r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}"#;
    let (status, said) = kubernetes.post("api/v1/namespaces/default/serviceaccounts/darter/token", request);
    assert_eq!(status, 201, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    std::fs::write(kubernetes.files.join("account"), said["status"]["token"].as_str().unwrap()).unwrap();
}

#[test]
fn kubernetes_keeps_views() {
    let Some(kubernetes) = Kubernetes::start(1) else { return };
    apply_manifests(&kubernetes);
    let url = format!("{}&timeout-ms=10000", kubernetes.url("account"));
    assert_keeps_views(&url);
    assert_has_one_winner(&url.replace("default/darter", "default/contended"), 20);
    // A deleted `ConfigMap` is a lost view.
    let mut store = ViewStore::open(&url, 0).unwrap();
    let object =
        format!("https://{}/api/v1/namespaces/default/configmaps/darter-0", kubernetes.servers.host(0));
    let deleted = kubernetes.agent.delete(&object).header("Authorization", "Bearer admin").call().unwrap();
    assert_eq!(deleted.status(), 200);
    assert!(matches!(set(&mut store, view(3, 8)), Err(StoreError::Lost { wanted: 3, .. })));
    let elsewhere = url.replace("default/darter", "elsewhere/darter");
    for (url, word) in [
        (kubernetes.url("nobody"), "orbidden"),
        (kubernetes.url("unknown"), "nauthorized"),
        // The role applies to one namespace.
        (elsewhere, "orbidden"),
    ] {
        let error = ViewStore::open(&url, 0).unwrap().view().unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains(word), "{error}");
    }
    // That namespace does not exist.
    let nowhere = kubernetes.url("admin").replace("default/darter", "nowhere/darter");
    let error = set(&mut ViewStore::open(&nowhere, 0).unwrap(), view(1, 7)).unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
}

#[test]
fn one_of_three_servers_at_a_time_is_killed_or_stopped() {
    let Some(mut kubernetes) = Kubernetes::start(3) else { return };
    assert_survives_strikes(&mut kubernetes.servers);
}
