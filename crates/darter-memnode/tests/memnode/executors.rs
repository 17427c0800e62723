//! Sessions on an executor that does not know the fabric: other tasks go on during every failure of
//! a memory node.

use crate::support::Node;
use crate::support::gate::gated;
use darter::{Store, engine};
use darter_fabric::Fabric;
use darter_fabric::{Endpoint, ExternalDriver, GlobalAddr, Provider, Tcp, TcpOptions, block_on};
use darter_memnode::{MemNodeOptions, Region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::Future;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn start() -> Node {
    let region = Region::memory(128 << 20).unwrap();
    Node::start(region, "127.0.0.1:0", MemNodeOptions::default())
}

/// Creates a pool on memory nodes.
fn create_on(nodes: Tcp) -> Result<Store, darter::Error> {
    engine::create_on(&Store::options().maintenance(false), Provider::Tcp(nodes))
}

fn connect(address: SocketAddr) -> Tcp {
    Tcp::connect(&[address.to_string()], TcpOptions::default()).unwrap()
}

#[test]
fn other_tasks_go_on_while_a_node_is_slow() {
    let node = start();
    let (address, gate) = gated(node.address);
    let store = create_on(connect(address)).unwrap();
    // All tasks share one thread: a task that blocked in a poll would prevent the others from
    // opening the gate.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let session = store.async_session().unwrap();
        session.put(b"pear", b"green").await.unwrap();
        // Once with a connection, and once while the connection itself is pending.
        for _ in 0..2 {
            gate.shut(true);
            let read = runtime.spawn({
                let session = store.async_session().unwrap();
                async move { session.get(b"pear").await.unwrap() }
            });
            let others = runtime.spawn({
                let gate = Arc::clone(&gate);
                async move {
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                    gate.shut(false);
                }
            });
            others.await.unwrap();
            assert_eq!(read.await.unwrap().as_deref(), Some(&b"green"[..]));
        }
    });
}

#[test]
fn many_tasks_of_several_threads_share_a_fabric() {
    let node = start();
    let store = create_on(connect(node.address)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..50_u32)
            .map(|task| {
                let session = store.async_session().unwrap();
                runtime.spawn(async move {
                    for n in 0..20_u32 {
                        let key = (n * 50 + task).to_be_bytes();
                        session.put(key, key).await.unwrap();
                        assert_eq!(session.get(key).await.unwrap().as_deref(), Some(&key[..]));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    // The same store, from the fabric's own loop.
    assert_eq!(store.session().unwrap().range(..).count(), 1000);
}

#[test]
fn a_future_goes_on_wherever_it_is_polled_next() {
    let node = start();
    let (address, gate) = gated(node.address);
    let fabric = connect(address);
    let mut endpoint = fabric.endpoint().unwrap();
    let warm = endpoint.batch();
    block_on(endpoint.submit(warm)).unwrap();
    gate.shut(true);
    let mut batch = endpoint.batch();
    let read = batch.read(GlobalAddr::new(0, 64), 1);
    let mut future = Box::pin(endpoint.submit(batch));
    // Posted by this thread's loop, which ends; then polled by another executor, and by another
    // thread's loop.
    block_on(std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    }));
    gate.shut(false);
    let done = std::thread::scope(|scope| scope.spawn(move || block_on(future).unwrap()).join().unwrap());
    assert_eq!(done.words(read), [0]);
}

#[test]
fn a_dropped_fabric_leaves_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (node, address) = (start(), listener.local_addr().unwrap());
    let behind = node.address;
    let ended = Arc::new((AtomicBool::new(false), Mutex::new(0_usize)));
    let theirs = Arc::clone(&ended);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(behind).unwrap());
            let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            *theirs.1.lock().unwrap() += 1;
            let theirs = Arc::clone(&theirs);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut client, &mut server);
                *theirs.1.lock().unwrap() -= 1;
                theirs.0.store(true, Ordering::Release);
            });
        }
    });
    let fabric = connect(address);
    let mut endpoint = fabric.endpoint().unwrap();
    let read = |endpoint: &mut darter_fabric::tcp::TcpEndpoint| {
        let mut batch = endpoint.batch();
        batch.read(GlobalAddr::new(0, 64), 1);
        batch
    };
    let batch = read(&mut endpoint);
    block_on(endpoint.submit(batch)).unwrap();
    let batch = read(&mut endpoint);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(endpoint.submit(batch)).unwrap();
    // Control, this thread's own hub, the common hub.
    assert_eq!(*ended.1.lock().unwrap(), 3);
    drop((endpoint, fabric));
    let gone = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        *ended.1.lock().unwrap() == 0
    });
    assert!(gone, "this thread lives, and its hub must not");
}

/// A waker that records when it was called.
#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls a future to completion next to an external driver. Returns how often posts requested a
/// call.
fn poll_with_driver<T>(driver: &mut ExternalDriver, future: impl Future<Output = T>) -> (T, usize) {
    let (mut future, task, poster) = (pin!(future), Arc::new(Called::default()), Arc::new(Called::default()));
    let (task_waker, poster_waker) = (Waker::from(Arc::clone(&task)), Waker::from(Arc::clone(&poster)));
    let mut calls = 0;
    loop {
        driver.wake_on_post(&poster_waker);
        task.0.store(false, Ordering::SeqCst);
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&task_waker)) {
            return (output, calls);
        }
        calls += usize::from(poster.0.swap(false, Ordering::SeqCst));
        driver.send().unwrap();
        while !task.0.load(Ordering::SeqCst) {
            let wait = Timespec { tv_sec: 30, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&*driver, PollFlags::IN)], Some(&wait)).unwrap();
            assert!(ready > 0, "replies arrived that the driver's file did not signal");
            while driver.turn().unwrap() {}
        }
    }
}

#[test]
fn an_external_driver_sees_to_the_tasks_of_its_thread() {
    let nodes = [start(), start()];
    let addresses = nodes.each_ref().map(|node| node.address.to_string());
    let fabric = Tcp::connect(&addresses, TcpOptions::default()).unwrap();
    let store = create_on(fabric).unwrap();
    let mut driver = ExternalDriver::enter().unwrap();
    assert!(ExternalDriver::enter().is_err(), "two drivers of one thread");
    for round in 0..2_u32 {
        // Ready tasks are polled one after another, as executors do.
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = (0..20_u32)
            .map(|task| {
                let session = store.async_session().unwrap();
                Box::pin(async move {
                    for n in 0..20_u32 {
                        let key = (n * 50 + task).to_be_bytes();
                        session.put(key, round.to_be_bytes()).await.unwrap();
                        assert_eq!(session.get(key).await.unwrap().unwrap(), round.to_be_bytes());
                    }
                }) as Pin<Box<dyn Future<Output = ()>>>
            })
            .collect();
        let all = std::future::poll_fn(|context| {
            tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
            if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        let ((), calls) = poll_with_driver(&mut driver, all);
        // Many posts are sent by one call.
        assert!((1..20 * 20 * 4).contains(&calls), "{calls}");
        // A nested loop of the fabric takes over and returns control.
        assert_eq!(store.session().unwrap().get(0_u32.to_be_bytes()).unwrap().unwrap(), round.to_be_bytes());
    }
    drop(driver);
    // Without it the fabric's thread drives the connections.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let session = store.async_session().unwrap();
    assert_eq!(runtime.block_on(session.get(7_u32.to_be_bytes())).unwrap().unwrap(), 1_u32.to_be_bytes());
    drop(ExternalDriver::enter().unwrap());
}

#[test]
fn an_external_driver_finds_a_node_again_that_has_hung_up() {
    let node = start();
    let (address, gate) = gated(node.address);
    let store = create_on(connect(address)).unwrap();
    let mut driver = ExternalDriver::enter().unwrap();
    let session = store.async_session().unwrap();
    poll_with_driver(&mut driver, session.put(b"pear", b"green")).0.unwrap();
    gate.hang_up();
    // The operation in progress may or may not have taken effect; later ones find the node again.
    let found = (0..100).find_map(|_| poll_with_driver(&mut driver, session.get(b"pear")).0.ok());
    assert_eq!(found.unwrap().as_deref(), Some(&b"green"[..]));
}
