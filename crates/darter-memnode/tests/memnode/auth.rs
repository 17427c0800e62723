//! Tokens: which clients and nodes are accepted, and the effect of replayed handshakes and
//! impostors.

use crate::support::{Node, connect, hear, say};
use bytemuck::Zeroable;
use darter_fabric::wire::proof::{Nonce, Proof, Side, Transcript, nonce};
use darter_fabric::wire::{self, Challenge, Hello, Opening, Refusal, Welcome};
use darter_fabric::{Fabric, FabricError, Tcp, TcpOptions};
use darter_memnode::MemNodeOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

const TOKEN: &[u8] = b"open sesame";

fn guarded() -> Node {
    Node::small(MemNodeOptions { token: TOKEN.to_vec().into(), ..MemNodeOptions::default() })
}

fn connect_to(address: SocketAddr, token: &[u8]) -> Result<Tcp, FabricError> {
    Tcp::connect(&[address.to_string()], TcpOptions { token: token.to_vec().into(), ..TcpOptions::default() })
}

/// Accepts one connection and runs `script` on it.
fn pose(script: impl FnOnce(&mut TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || script(&mut listener.accept().unwrap().0));
    (address, thread)
}

fn welcome(refusal: Refusal, proof: Proof) -> Welcome {
    let (refusal, frame_bytes) = (refusal as u32, wire::FRAME_BYTES_MAX);
    Welcome { refusal, region_bytes: 1 << 20, boot_id: 7, frame_bytes, proof, ..Welcome::zeroed() }
}

#[test]
fn clients_without_the_token_are_refused() {
    let mut node = guarded();
    for wrong in [&b""[..], b"open", b"open sesamy", b"open sesame\0", &[0; 256]] {
        let error = connect(&[&node], wrong).unwrap_err().to_string();
        assert!(error.contains("credentials"), "{error}");
    }
    assert!(connect(&[&node], &[0; 257]).is_err());
    let fabric = connect(&[&node], TOKEN).unwrap();
    drop(fabric.endpoint().unwrap());
    drop(fabric);
    let counts = node.end();
    assert_eq!((counts.accepted, counts.refused), (1, 5));
}

#[test]
fn a_node_without_a_token_is_not_believed_by_a_client_with_one() {
    let node = Node::small(MemNodeOptions::default());
    connect(&[&node], b"").unwrap();
    let error = connect(&[&node], TOKEN).unwrap_err().to_string();
    assert!(error.contains("has no token"), "{error}");
}

#[test]
fn a_recorded_greeting_is_worth_nothing() {
    let node = guarded();
    let (inside, outside) = (node.address, TcpListener::bind("127.0.0.1:0").unwrap());
    let address = outside.local_addr().unwrap();
    let recorder = std::thread::spawn(move || {
        let mut client = outside.accept().unwrap().0;
        let mut node = TcpStream::connect(inside).unwrap();
        let hello: Hello = hear(&mut client);
        say(&mut node, &hello);
        say(&mut client, &hear::<Challenge>(&mut node));
        let proof: Proof = hear(&mut client);
        say(&mut node, &proof);
        say(&mut client, &hear::<Welcome>(&mut node));
        (hello, proof)
    });
    connect_to(address, TOKEN).unwrap();
    let (hello, proof) = recorder.join().unwrap();
    let mut stream = TcpStream::connect(node.address).unwrap();
    say(&mut stream, &hello);
    assert_eq!(hear::<Challenge>(&mut stream).opening.code, 0);
    say(&mut stream, &proof);
    let answer: Welcome = hear(&mut stream);
    assert_eq!(answer.refusal, Refusal::Credentials as u32);
    // The client received no information.
    assert_eq!((answer.region_bytes, answer.boot_id, answer.proof), (0, 0, Proof::default()));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), answer.text_bytes as usize);
}

#[test]
fn an_impostor_is_noticed() {
    type Forge = fn(&Transcript, Proof) -> Welcome;
    let forgeries: [Forge; 5] = [
        |_, _| welcome(Refusal::None, Proof::default()),
        |_, _| welcome(Refusal::Fenced, Proof::default()),
        // The client's own proof, sent back.
        |_, theirs| welcome(Refusal::None, theirs),
        |transcript, _| welcome(Refusal::None, transcript.prove(b"guess", Side::Node)),
        // A proof from an earlier connection.
        |transcript, _| {
            let earlier = Transcript { client: [1; 32], ..*transcript };
            welcome(Refusal::None, earlier.prove(TOKEN, Side::Node))
        },
    ];
    let meet = |forge: Forge| {
        let (address, thread) = pose(move |stream| {
            let hello: Hello = hear(stream);
            let transcript =
                Transcript { client: hello.nonce, node: nonce().unwrap(), session: hello.session };
            say(stream, &Challenge::new(Refusal::None, transcript.node));
            let theirs: Proof = hear(stream);
            assert!(transcript.is_proven(TOKEN, Side::Client, &theirs));
            say(stream, &forge(&transcript, theirs));
        });
        let met = connect_to(address, TOKEN);
        thread.join().unwrap();
        met
    };
    for forge in forgeries {
        let error = meet(forge).unwrap_err().to_string();
        assert!(error.contains("does not know the token"), "{error}");
    }
    meet(|transcript, _| welcome(Refusal::None, transcript.prove(TOKEN, Side::Node))).unwrap();
}

#[test]
fn other_protocol_versions_are_reported() {
    let node = guarded();
    // The hello of version 1, followed by its token.
    let opening = Opening { magic: wire::MAGIC, version: 1, code: TOKEN.len() as u32 };
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.write_all(&[wire::as_bytes(&opening), &[5; 16], TOKEN].concat()).unwrap();
    let answer: Challenge = hear(&mut stream);
    assert_eq!(answer, Challenge::new(Refusal::Version, Nonce::default()));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);

    let (address, thread) = pose(|stream| {
        hear::<Hello>(stream);
        // The welcome of version 1, which also refused before anything else.
        let opening = Opening { magic: wire::MAGIC, version: 1, code: Refusal::Version as u32 };
        stream.write_all(&[wire::as_bytes(&opening), &[0; 32]].concat()).unwrap();
    });
    let error = connect_to(address, TOKEN).unwrap_err().to_string();
    let ours = format!("version {}", wire::VERSION);
    assert!(error.contains("speaks version 1") && error.contains(&ours), "{error}");
    thread.join().unwrap();
}

#[test]
fn server_with_invalid_replies_is_not_a_node() {
    let says: [&[u8]; 3] = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-", &[0xff; 4096]];
    for says in says {
        let (address, thread) = pose(move |stream| {
            hear::<Hello>(stream);
            stream.write_all(says).unwrap();
        });
        let error = connect_to(address, TOKEN).unwrap_err().to_string();
        assert!(error.contains("not a memory node of darter"), "{error}");
        thread.join().unwrap();
    }
    // A welcome whose text does not end.
    let (address, thread) = pose(|stream| {
        hear::<Hello>(stream);
        say(stream, &Challenge::new(Refusal::None, [0; 32]));
        hear::<Proof>(stream);
        say(stream, &Welcome { text_bytes: u32::MAX, ..welcome(Refusal::Credentials, Proof::default()) });
    });
    let error = connect_to(address, TOKEN).unwrap_err().to_string();
    assert!(error.contains("not a memory node of darter"), "{error}");
    thread.join().unwrap();
}

#[test]
fn a_greeting_in_drops_is_not_waited_for() {
    let patience = Duration::from_millis(200);
    let mut node = Node::small(MemNodeOptions { patience, ..MemNodeOptions::default() });
    let mut stream = TcpStream::connect(node.address).unwrap();
    let hello = Hello::new(5, nonce().unwrap());
    let greeting = [wire::as_bytes(&hello), &[0; 32]].concat();
    let ended = greeting.chunks(1).any(|byte| {
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(byte).is_err()
    });
    assert!(ended);
    let counts = node.end();
    assert_eq!((counts.accepted, counts.dropped), (0, 1));
}
