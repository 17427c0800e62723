//! A proxy in front of a node that can be paused and cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// Controls whether bytes pass.
#[derive(Default)]
pub struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    /// Both ends of each connection, the client's first.
    ways: Mutex<Vec<[TcpStream; 2]>>,
}

impl Gate {
    pub fn shut(&self, yes: bool) {
        *self.is_shut.lock().unwrap() = yes;
        self.opened.notify_all();
    }

    /// Ends all connections.
    pub fn hang_up(&self) {
        for way in self.ways.lock().unwrap().drain(..).flatten() {
            let _ = way.shutdown(Shutdown::Both);
        }
    }

    /// Ends all connections to the node. Clients detect it when the gate is open.
    pub fn hang_up_on_node(&self) {
        for [_, server] in self.ways.lock().unwrap().drain(..) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    fn pass(&self) {
        let is_shut = self.is_shut.lock().unwrap();
        drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).unwrap());
    }
}

/// Starts a proxy to a node. Returns its address and its control.
pub fn gated(node: SocketAddr) -> (SocketAddr, Arc<Gate>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Arc::new(Gate::default());
    let ours = Arc::clone(&gate);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(node).unwrap());
            ours.ways.lock().unwrap().push([client.try_clone().unwrap(), server.try_clone().unwrap()]);
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                let gate = Arc::clone(&ours);
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        gate.pass();
                        if to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    gate.pass();
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, gate)
}
