//! `up`: runs memory nodes of this machine with a pool on them, and gateways to it, each in its own
//! process, until the command ends.
//!
//! A process serves until its stdin is closed, and this process holds the other end, so no process
//! outlives this one, however it ends. They listen on loopback only, without TLS. The pool needs
//! all memory nodes, so when one ends all are stopped; a replica is started again instead. A
//! gateway keeps no state, and when one ends the others go on.

use crate::Answer;
use crate::arguments::IndexArgs;
use crate::credentials::{TokenArgs, without_credentials};
use crate::durability::Durability;
use crate::failure::{EXIT_INTERRUPTED, Failure, complain};
use crate::logging::{Format, LogArgs};
use crate::replication::{SUSPECT_AFTER, patience};
use crate::signals::{ending_signals, in_a_thread};
use darter::{ByteSize, PoolUrl, Store};
use darter_fabric::files::{Access, Sharing, write_output};
use darter_fabric::rdma::DeviceName;
use darter_fabric::{TcpOptions, counted};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter up --memnodes 3 --size 256M --dir ./fruit
  darter up --memnodes 3 --size 256M --dir ./fruit-for-good --durability log
  darter up --memnodes 2 --replicas 2 --size 256M --gateways 2
  darter up --memnodes 1 --replicas 3 --size 256M --dir ./fruit-thrice --durability log
  darter up --gateways 2 --resp-port 6379 --http-port 9701")]
pub struct UpCommand {
    /// Number of memory nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=256))]
    memnodes: u16,
    /// Number of gateways for Redis clients, each with a status page
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=256))]
    gateways: u16,
    /// Port of the first gateway; the others use the ports after it. With 0 the system chooses free
    /// ports, which are printed on stdout
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "gateways")]
    resp_port: u16,
    /// Port of the first gateway's status page; the others use the ports after it. With 0 the
    /// system chooses free ports, which are logged
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "gateways")]
    http_port: u16,
    /// Number of processes per memory node, each with a full copy of its region: the pool survives
    /// the death of all but one of them, and processes that die are started again. With --dir and
    /// --durability log each keeps a log there, and the pool survives the death of all of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=7))]
    #[arg(conflicts_with = "rdma")]
    replicas: u16,
    /// Time in seconds after which the other replicas go on without a silent one, 0.05 to 3600
    #[arg(long, value_name = "SECONDS", default_value = SUSPECT_AFTER, value_parser = patience)]
    suspect_after: Duration,
    /// Size of each node's region in bytes, or with the suffix K, M, G or T (KiB, MiB, GiB, TiB);
    /// the system allocates memory as it is used
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    size: ByteSize,
    /// Keep the regions in this directory, which is created if absent; a pool in it is opened. By
    /// default the pool is in memory and ends with the command
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What must be on disk before a reply is sent: with `log`, nodes keep a log in --dir instead
    /// of their regions' files
    #[arg(long, value_enum, value_name = "HOW", default_value = "none")]
    durability: Durability,
    /// Execute verbs through this RDMA device, which must be able to connect to itself; --dir must
    /// then be on tmpfs or hugetlbfs
    #[arg(long, value_name = "DEVICE[:PORT[:GID]]")]
    rdma: Option<DeviceName>,
    /// File with the password that clients of the gateways must send by AUTH or HELLO; a line end
    /// after it is ignored [default: the token, if there is one]
    #[arg(long, value_name = "FILE", requires = "gateways")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    index: IndexArgs,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Maximum time for processes to end: twice the time that they give their peers.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of checks on processes that should end.
const LOOK: Duration = Duration::from_millis(10);
/// A process that exits sooner than this after its start is not started again.
const REVIVED_MIN: Duration = Duration::from_secs(1);
/// Maximum length in bytes of the line with the address of a process.
const LINE_BYTES_MAX: u64 = 256;

/// The file in a directory with the addresses of its nodes.
const ADDRESSES: &str = "addresses";

/// A process of a memory node or a gateway, with its stdin held open; killed when dropped before it
/// has ended.
struct Daemon {
    name: String,
    child: Child,
    /// If the process can be restarted: its number, its arguments, and the time of its last start.
    again: Option<(u16, Vec<OsString>, Instant)>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Usually the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(what: &str, at: u16, arguments: &[OsString]) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed(format_args!("cannot find this program's own file: {error}")))?;
        let mut command = Command::new(program);
        // Credentials in the environment are for other nodes and gateways; the token is passed as a
        // file.
        without_credentials(&mut command);
        let child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The terminal sends signals to this process only, which stops the others.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::failed(format_args!("cannot start {what} {at}: {error}")))?;
        let name = format!("{what} {at}, process {}", child.id());
        Ok(Self { name, child, again: None })
    }

    /// Starts the process again after it ended with `status`, if allowed. Returns whether it did.
    fn revive(&mut self, status: ExitStatus) -> bool {
        let Some((at, arguments, began)) = self.again.take() else { return false };
        // A killed process is not at fault; one that failed at once would fail again.
        if status.code().is_some() && began.elapsed() < REVIVED_MIN {
            return false;
        }
        let Ok(mut revived) = Self::start("memory node", at, &arguments) else { return false };
        revived.again = Some((at, arguments, Instant::now()));
        *self = revived;
        true
    }

    /// Waits until the process listens, and returns its address without the scheme.
    fn address(&mut self, scheme: &str) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some(out) = self.child.stdout.take() {
            let _ = BufReader::new(out.take(LINE_BYTES_MAX)).read_line(&mut line);
        }
        if let Some(address) = line.trim().strip_prefix(scheme) {
            return Ok(address.to_owned());
        }
        let why = format!("{}: did not start", self.name);
        // It has printed why, and its exit code shows whether the arguments were at fault.
        let is_usage = self.child.wait().is_ok_and(|status| status.code() == Some(2));
        Err(if is_usage { Failure::Usage(why) } else { Failure::Failed(why) })
    }

    /// Returns the exit status if the process has ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl UpCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let token = self.token.content()?;
        for first in [self.resp_port, self.http_port] {
            if u32::from(first) + u32::from(self.gateways) > 1 << 16 {
                return Err(Failure::usage(format!(
                    "there are fewer than {} from {first} on; choose a lower first port",
                    counted(self.gateways.into(), "port")
                )));
            }
        }
        if self.durability == Durability::Log && self.dir.is_none() {
            return Err(Failure::usage("--durability log needs a directory for the logs: --dir DIR"));
        }
        if self.replicas > 1 && self.dir.is_some() && self.durability != Durability::Log {
            return Err(Failure::usage(
                "replicas keep their regions in memory, and logs of them in --dir: add --durability log",
            ));
        }
        let is_present = self.dir.as_deref().map_or(Ok(false), |dir| self.prepare(dir))?;
        let mut signals =
            Signals::new(ending_signals().into_iter().chain([SIGCHLD])).map_err(Failure::failed)?;
        let scheme = if self.rdma.is_some() { "rdma://" } else { "tcp://" };
        // Holds the views of groups while this command runs, unless the pool outlives it.
        let views = (self.replicas > 1 && self.dir.is_none()).then(tempfile::tempdir).transpose()?;
        let starting = end_while_starting(views.as_ref().map(|views| views.path().to_owned()))?;
        let views = views.as_ref().map(tempfile::TempDir::path).or(self.dir.as_deref());
        let (mut nodes, addresses) = match views.filter(|_| self.replicas > 1) {
            Some(views) => self.start_groups(views, is_present)?,
            None => self.start_nodes(scheme, is_present)?,
        };
        let device = self.rdma.as_ref().map_or(String::new(), |device| format!("?device={device}"));
        let url = format!("{scheme}{}{device}", addresses.join(","));
        let pool: PoolUrl = url.parse().map_err(Failure::failed)?;
        let options = Store::options().tcp(TcpOptions { token, ..TcpOptions::default() });
        let options = if is_present { options.create(false) } else { options.create(true) };
        let store = self.index.open(options, &pool)?;
        complain(format_args!(
            "note: {} a pool of {}{}, {} each, {}",
            if is_present { "opened" } else { "created" },
            counted(self.memnodes.into(), "memory node"),
            if self.replicas > 1 { format!(" with {} replicas", self.replicas) } else { String::new() },
            self.size,
            self.dir.as_ref().map_or("in memory".to_owned(), |dir| format!("in {}", dir.display())),
        ));
        drop(store);
        if let Some(dir) = &self.dir {
            let path = dir.join(ADDRESSES);
            let text = addresses.join("\n") + "\n";
            write_output(&path, Access::Owner, text.as_bytes())
                .map_err(|error| Failure::of_output(&path, &error))?;
        }
        let gateways =
            (0..self.gateways).map(|at| Daemon::start("gateway", at, &self.gateway_arguments(at, &url)));
        let mut gateways = gateways.collect::<Result<Vec<_>, _>>()?;
        let served = gateways.iter_mut().map(|gateway| gateway.address("redis://"));
        let served = served.collect::<Result<Vec<_>, _>>()?;
        self.say_who_asks();
        starting.close();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{url}")?;
        served.iter().try_for_each(|address| writeln!(out, "redis://{address}"))?;
        out.flush()?;
        drop(out);
        let answer = watch(&mut signals, &mut nodes, &mut gateways);
        // Gateways leave the pool while its nodes still run.
        stop(&mut signals, &mut gateways);
        stop(&mut signals, &mut nodes);
        Ok(answer)
    }

    /// Starts the memory nodes. Returns them with their addresses.
    fn start_nodes(&self, scheme: &str, is_present: bool) -> Result<(Vec<Daemon>, Vec<String>), Failure> {
        let mut nodes = Vec::new();
        let known = if is_present { self.known_addresses() } else { Vec::new() };
        for at in 0..self.memnodes {
            let listen = known.get(usize::from(at)).map_or("127.0.0.1:0", String::as_str);
            let region = self.dir.as_ref().map(|dir| region(dir, at));
            nodes.push(Daemon::start("memory node", at, &self.node_arguments(listen, region))?);
        }
        let addresses = nodes.iter_mut().map(|node| node.address(scheme));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        Ok((nodes, addresses))
    }

    /// Starts the replicas of all memory nodes, with their views in a directory. Returns them with
    /// the addresses of the nodes.
    fn start_groups(&self, views: &Path, is_present: bool) -> Result<(Vec<Daemon>, Vec<String>), Failure> {
        let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
        let views = format!("file:{}", views.join("views").display());
        let known = if is_present { self.known_addresses() } else { Vec::new() };
        for group in 0..self.memnodes {
            let listens: Vec<String> = if let Some(known) = known.get(usize::from(group)) {
                known.split('+').map(str::to_owned).collect()
            } else {
                let listeners = (0..self.replicas).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
                let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
                // Their processes take over the ports.
                let listens = listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string()));
                listens.collect::<Result<_, std::io::Error>>()?
            };
            let address = listens.join("+");
            for (replica, listen) in listens.iter().enumerate() {
                let log = self.dir.as_ref().map(|dir| region(dir, group).join(format!("replica-{replica}")));
                if let Some(directory) = log.as_ref().and_then(|log| log.parent()) {
                    create_directory(directory)?;
                }
                let mut arguments = self.node_arguments(listen, log);
                let patience = self.suspect_after.as_secs_f64().to_string();
                let number = group.to_string();
                let replica =
                    ["--replicas", &address, "--views", &views, "--group", &number, "--suspect-after"];
                arguments.extend(replica.into_iter().chain([patience.as_str()]).map(OsString::from));
                let mut node = Daemon::start("memory node", group, &arguments)?;
                node.again = Some((group, arguments, Instant::now()));
                nodes.push(node);
            }
            addresses.push(address);
        }
        for node in &mut nodes {
            node.address("tcp://")?;
        }
        Ok((nodes, addresses))
    }

    /// Creates the directory. Returns whether it already has all regions.
    fn prepare(&self, dir: &Path) -> Result<bool, Failure> {
        create_directory(dir)?;
        let there = (0..self.memnodes).filter(|&at| region(dir, at).exists()).count();
        if there > 0 && (there < usize::from(self.memnodes) || region(dir, self.memnodes).exists()) {
            return Err(Failure::usage(format!(
                "{}: it holds a pool of another number of memory nodes than {}; give its number with --memnodes",
                dir.display(),
                self.memnodes
            )));
        }
        let replicas = self.known_addresses().first().map(|node| node.split('+').count());
        if let Some(replicas) =
            replicas.filter(|replicas| there > 0 && *replicas != usize::from(self.replicas))
        {
            return Err(Failure::usage(format!(
                "{}: its memory nodes have {}; give that number with --replicas",
                dir.display(),
                counted(replicas as u64, "replica")
            )));
        }
        Ok(there > 0)
    }

    /// Returns the addresses at which the nodes of an existing pool listened, in order. Clients
    /// connect to them, since they are in the pool's own directory. Empty if no valid addresses are
    /// recorded.
    fn known_addresses(&self) -> Vec<String> {
        let text = self.dir.as_ref().and_then(|dir| std::fs::read_to_string(dir.join(ADDRESSES)).ok());
        let addresses: Vec<String> = text.unwrap_or_default().lines().map(str::to_owned).collect();
        let mut all = addresses.iter().flat_map(|node| node.split('+'));
        let is_sound = all.all(|address| address.parse::<SocketAddr>().is_ok());
        if is_sound { addresses } else { Vec::new() }
    }

    /// Returns the arguments of a process of either kind.
    fn arguments(&self, words: &[&str]) -> Vec<OsString> {
        let format = match self.log.log_format {
            Format::Text => "text",
            Format::Json => "json",
        };
        let level = self.log.log_level.to_string();
        let log = ["--until-stdin-closes", "--log-format", format, "--log-level", &level];
        let mut arguments: Vec<_> = words.iter().chain(&log).map(OsString::from).collect();
        if let Some(file) = &self.token.token_file {
            arguments.extend(["--token-file".into(), file.into()]);
        }
        arguments
    }

    /// Returns the arguments of a memory node with this file of its region, or directory of its log.
    fn node_arguments(&self, listen: &str, region: Option<PathBuf>) -> Vec<OsString> {
        let mut arguments =
            self.arguments(&["memnode", "--listen", listen, "--size", &self.size.to_string()]);
        if let Some(region) = region {
            match self.durability {
                Durability::Never => arguments.extend(["--file".into(), region.into()]),
                Durability::Log => {
                    let log: [OsString; 4] =
                        ["--durability".into(), "log".into(), "--log".into(), region.into()];
                    arguments.extend(log);
                }
            }
        }
        if let Some(device) = &self.rdma {
            arguments.extend(["--rdma".into(), device.to_string().into()]);
        }
        arguments
    }

    /// Returns the arguments of gateway `at`.
    fn gateway_arguments(&self, at: u16, url: &str) -> Vec<OsString> {
        let address = |first: u16| {
            let port = if first == 0 { 0 } else { first + at };
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string()
        };
        let (resp, http) = (address(self.resp_port), address(self.http_port));
        let words = ["serve", "--resp", &resp, "--http", &http, "--pool", url];
        let index = self.index.name().into_iter().flat_map(|name| ["--index", name]);
        let mut arguments = self.arguments(&words.into_iter().chain(index).collect::<Vec<_>>());
        if let Some(file) = self.password_file.as_ref().or(self.token.token_file.as_ref()) {
            arguments.extend(["--password-file".into(), file.into()]);
        }
        arguments
    }

    /// Prints which credentials the gateways require.
    fn say_who_asks(&self) {
        if self.gateways == 0 || self.password_file.is_some() {
            return;
        }
        complain(if self.token.token_file.is_some() {
            "note: the gateways require the token from their clients, by AUTH; for another password give --password-file"
        } else {
            "note: the gateways serve every user of this machine; restrict access with --password-file or --token-file"
        });
    }
}

/// Ends the process on a signal until the returned handle is closed, since starting can take long.
/// The other processes end when their stdin is closed.
fn end_while_starting(views: Option<PathBuf>) -> Result<signal_hook::iterator::Handle, Failure> {
    let mut signals = Signals::new(ending_signals()).map_err(Failure::failed)?;
    let handle = signals.handle();
    in_a_thread("starting", move || {
        if signals.forever().next().is_some() {
            if let Some(views) = views {
                let _ = std::fs::remove_dir_all(views);
            }
            signal_hook::low_level::exit(EXIT_INTERRUPTED.into());
        }
    })?;
    Ok(handle)
}

fn create_directory(path: &Path) -> Result<(), Failure> {
    let created = Sharing::default().create_directory(path);
    let failed = |error| Failure::usage(format!("{}: cannot create it: {error}", path.display()));
    created.map(drop).map_err(failed)
}

/// The file of a node's region, or the directory of its log.
fn region(dir: &Path, at: u16) -> PathBuf {
    dir.join(format!("node-{at}"))
}

/// Waits for a request to stop, or until a memory node has ended by itself.
fn watch(signals: &mut Signals, nodes: &mut [Daemon], gateways: &mut Vec<Daemon>) -> Answer {
    // Processes that ended earlier have left a pending signal.
    for signal in signals.forever() {
        if signal != SIGCHLD {
            return Answer::Done;
        }
        gateways.retain_mut(|gateway| {
            let ended = gateway.ended();
            if let Some(status) = ended {
                complain(format_args!("{}: ended by itself, {status}; the others go on", gateway.name));
            }
            ended.is_none()
        });
        let mut answer = Answer::Done;
        for node in &mut *nodes {
            let Some(status) = node.ended() else { continue };
            let name = node.name.clone();
            if node.revive(status) {
                complain(format_args!("{name}: ended by itself, {status}; started again as {}", node.name));
            } else {
                complain(format_args!("{name}: ended by itself, {status}; stopping the others"));
                answer = Answer::No;
            }
        }
        if answer == Answer::No {
            return answer;
        }
    }
    Answer::Done
}

/// Stops processes: requests them to stop, and kills them after a timeout or a second request.
fn stop(signals: &mut Signals, daemons: &mut Vec<Daemon>) {
    for daemon in &mut *daemons {
        // The process id is not reused before `wait` is called.
        if daemon.ended().is_none() {
            let _ = kill_process(Pid::from_child(&daemon.child), Signal::TERM);
        }
    }
    let end = Instant::now() + END_PATIENCE;
    while !daemons.is_empty() {
        daemons.retain_mut(|daemon| daemon.ended().is_none());
        if Instant::now() > end || signals.pending().any(|signal| signal != SIGCHLD) {
            for daemon in daemons.drain(..) {
                complain(format_args!("{}: killed, since it did not stop when requested", daemon.name));
            }
        }
        std::thread::sleep(LOOK);
    }
}
