//! A TCP service whose tasks share one store: each line is `get KEY`, `put KEY VALUE` or `del KEY`.
//!
//! `cargo run -p darter --example tokio_service`

use darter::{AsyncStore, Error};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Executes one line. Returns the reply.
async fn execute(store: &AsyncStore, line: &str) -> Result<Vec<u8>, Error> {
    let words: Vec<&str> = line.splitn(3, ' ').collect();
    Ok(match words[..] {
        ["get", key] => store.get(key).await?.unwrap_or_else(|| b"(none)".to_vec()),
        ["put", key, value] => {
            store.put(key, value).await?;
            b"ok".to_vec()
        }
        ["del", key] => store.remove(key).await?.map_or_else(|| b"(none)".to_vec(), |_| b"ok".to_vec()),
        _ => b"usage: get KEY, put KEY VALUE or del KEY".to_vec(),
    })
}

async fn serve(store: AsyncStore, stream: TcpStream) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let mut reply = execute(&store, &line).await.unwrap_or_else(|error| error.to_string().into_bytes());
        reply.push(b'\n');
        writer.write_all(&reply).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = AsyncStore::open("mem:64M").await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = store.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(served.clone(), stream));
        }
    });

    // A client.
    let (reader, mut writer) = TcpStream::connect(address).await?.into_split();
    let mut replies = BufReader::new(reader).lines();
    for (line, expected) in
        [("put pear green", "ok"), ("get pear", "green"), ("del pear", "ok"), ("get pear", "(none)")]
    {
        writer.write_all(format!("{line}\n").as_bytes()).await?;
        let reply = replies.next_line().await?;
        println!("{line}: {reply:?}");
        assert_eq!(reply.as_deref(), Some(expected));
    }
    // Operations of one task can overlap, too.
    let (a, b) = tokio::join!(store.put("a", "1"), store.put("b", "2"));
    a?;
    b?;
    let (a, b) = tokio::join!(store.get("a"), store.get("b"));
    assert_eq!((a?, b?), (Some(b"1".to_vec()), Some(b"2".to_vec())));
    Ok(())
}
