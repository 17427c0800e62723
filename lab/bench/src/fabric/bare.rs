//! The baseline: READs and CASes over one TCP connection, by two loops that do nothing else.
//!
//! Both sockets are non-blocking and both ends spin. Requests and responses have fixed sizes and no
//! headers: a READ is its offset and returns 128 bytes; a CAS is offset, expected and desired word
//! and returns the word found. One system call transfers everything available. The server masks an
//! offset instead of checking it.

use super::node::{Cores, SERVER_CORE};
use super::{Load, READ_WORDS, REGION_WORDS, Rate, Verb};
use darter_bench::outcome::latency_histogram;
use darter_bench::permutation::mix64;
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes asked of a socket in one call.
const BUFFER_BYTES: usize = 256 << 10;

const fn request_bytes(verb: Verb) -> usize {
    match verb {
        Verb::Read => 8,
        Verb::Cas => 24,
    }
}

const fn answer_bytes(verb: Verb) -> usize {
    match verb {
        Verb::Read => READ_WORDS * 8,
        Verb::Cas => 8,
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at * 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Reads the available bytes; 0 if there are none.
fn read_some(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match socket.read(buffer) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

fn write_all(socket: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Serves one connection until the client closes it, which leaves responses unread.
fn serve(listener: &TcpListener, verb: Verb, memory: &[AtomicU64]) -> io::Result<()> {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    match answer(&mut socket, verb, memory) {
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => Ok(()),
        other => other,
    }
}

fn answer(socket: &mut TcpStream, verb: Verb, memory: &[AtomicU64]) -> io::Result<()> {
    let size = request_bytes(verb);
    let (mut input, mut output) = (vec![0; BUFFER_BYTES], Vec::with_capacity(BUFFER_BYTES));
    let mut have = 0;
    loop {
        have += read_some(socket, &mut input[have..])?;
        let whole = have / size * size;
        for request in input[..whole].chunks_exact(size) {
            let at = (word(request, 0) / 8) as usize & (REGION_WORDS - 1);
            match verb {
                Verb::Read => {
                    let mut words = [0_u64; READ_WORDS];
                    for (to, from) in words.iter_mut().zip(&memory[at & !(READ_WORDS - 1)..]) {
                        *to = from.load(Ordering::Acquire);
                    }
                    output.extend_from_slice(bytemuck::bytes_of(&words));
                }
                Verb::Cas => {
                    let (expected, desired) = (word(request, 1), word(request, 2));
                    let outcome =
                        memory[at].compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst);
                    let (Ok(found) | Err(found)) = outcome;
                    output.extend_from_slice(&found.to_le_bytes());
                }
            }
        }
        input.copy_within(whole..have, 0);
        have -= whole;
        write_all(socket, &output)?;
        output.clear();
    }
}

/// Keeps `load.in_flight` requests in flight until the time is over.
fn drive(address: std::net::SocketAddr, load: Load) -> io::Result<Rate> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    let size = answer_bytes(load.verb);
    let (mut input, mut output) = (vec![0; BUFFER_BYTES], Vec::with_capacity(BUFFER_BYTES));
    let (mut have, mut posted, mut done) = (0, 0_u64, 0_u64);
    // Of one request at a time: its number and when it was sent.
    let mut timed: Option<(u64, Instant)> = None;
    let mut latency = latency_histogram();
    let mut owed = load.in_flight as u64;
    let begin = Instant::now();
    let mut seconds = 0.0;
    while seconds < load.seconds {
        if owed > 0 && timed.is_none() {
            timed = Some((posted, Instant::now()));
        }
        for _ in 0..owed {
            let offset = (mix64(posted) % (REGION_WORDS as u64 * 8)) & !127;
            output.extend_from_slice(&offset.to_le_bytes());
            if load.verb == Verb::Cas {
                output.extend_from_slice(&0_u64.to_le_bytes());
                output.extend_from_slice(&0_u64.to_le_bytes());
            }
            posted += 1;
        }
        write_all(&mut socket, &output)?;
        output.clear();
        have += read_some(&mut socket, &mut input[have..])?;
        let whole = have / size * size;
        for answer in input[..whole].chunks_exact(size) {
            match load.verb {
                Verb::Read => black_box(bytemuck::pod_read_unaligned::<[u64; READ_WORDS]>(answer)[0]),
                Verb::Cas => black_box(word(answer, 0)),
            };
        }
        input.copy_within(whole..have, 0);
        have -= whole;
        owed = (whole / size) as u64;
        done += owed;
        if let Some((number, since)) = timed
            && done > number
        {
            latency.saturating_record(since.elapsed().as_nanos() as u64);
            timed = None;
            seconds = begin.elapsed().as_secs_f64();
        }
    }
    let us = |quantile| latency.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Rate { per_s: done as f64 / seconds, p50_us: us(0.5), p99_us: us(0.99) })
}

/// Performs one measurement, with the server in a thread on the first core.
pub(super) fn measure(load: Load, memory: &[AtomicU64], cores: &Cores) -> io::Result<Rate> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            cores.pin(SERVER_CORE);
            serve(&listener, load.verb, memory)
        });
        let rate = drive(address, load)?;
        server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(rate)
    })
}
