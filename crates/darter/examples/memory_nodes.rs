//! The recipe of docs/library.md for memory nodes over TCP, with a token and TLS; the page shows it to the letter.
//!
//! `DARTER_POOL=tcp://… cargo run -p darter --example memory_nodes`, with the files that docs/operate.md makes.

use darter::{ClientTls, IdentityFiles, Secrets, Store, TcpOptions};
use std::error::Error;
use std::path::Path;

fn open_nodes(url: &str) -> Result<Store, Box<dyn Error>> {
    let identity = IdentityFiles { certificate: Path::new("client.pem"), key: Path::new("client.key") };
    let options = TcpOptions {
        token: Secrets::from_file(Path::new("token"), "token")?,
        tls: Some(ClientTls::from_files(Path::new("ca.pem"), Some(identity))?),
        ..TcpOptions::default()
    };
    Ok(Store::options().tcp(options).open(url)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let Ok(url) = std::env::var("DARTER_POOL") else {
        println!("set DARTER_POOL to a pool on memory nodes");
        return Ok(());
    };
    let session = open_nodes(&url)?.session()?;
    session.put("pear", "green")?;
    println!("{:?}", session.get("pear")?);
    Ok(())
}
