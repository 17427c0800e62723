//! `INFO` and `TIME`: the state of the gateway.

#![allow(clippy::unnecessary_wraps)] // all commands have one signature, whether they can fail or not

use crate::REDIS_VERSION;
use crate::call::Call;
use crate::clock::now_us;
use crate::fault::Fault;
use crate::state::GatewayState;
use crate::table::TABLE;
use crate::turns;
use darter::engine::Engine;
use darter_fabric::Fabric;
use darter_fabric::wire::Credential;
use darter_telemetry::credentials::unix_seconds;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// `TIME`.
pub(super) fn time(call: &mut Call<'_>) -> Result<(), Fault> {
    let now = now_us();
    call.reply.array(2);
    for part in [now / 1_000_000, now % 1_000_000] {
        call.reply.bulk(itoa::Buffer::new().format(part).as_bytes());
    }
    Ok(())
}

/// A section of `INFO`.
struct Section {
    /// The name in lower case.
    name: &'static str,
    /// Whether it is part of the reply if no section is named.
    is_default: bool,
    write: fn(&Call<'_>, &mut String),
}

/// All sections, in Redis's order, then darter's own.
const SECTIONS: [Section; 13] = [
    Section { name: "server", is_default: true, write: server },
    Section { name: "clients", is_default: true, write: clients },
    Section { name: "memory", is_default: true, write: memory },
    Section { name: "persistence", is_default: true, write: persistence },
    Section { name: "stats", is_default: true, write: stats },
    Section { name: "replication", is_default: true, write: replication },
    Section { name: "cpu", is_default: true, write: cpu },
    Section { name: "commandstats", is_default: false, write: command_stats },
    Section { name: "errorstats", is_default: true, write: error_stats },
    Section { name: "cluster", is_default: true, write: cluster },
    Section { name: "modules", is_default: true, write: |_, _| {} },
    Section { name: "keyspace", is_default: true, write: keyspace },
    Section { name: "credentials", is_default: false, write: credentials },
];

/// `INFO [section…]`.
pub(super) async fn info(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut asked = BTreeSet::new();
    for section in call.args.from(1) {
        // No section has a longer name.
        asked.insert(section[..section.len().min(32)].to_ascii_lowercase());
        turns::worked().await;
    }
    let is_asked = |name: &str| asked.contains(name.as_bytes());
    let (has_all, has_default) =
        (is_asked("all") || is_asked("everything"), asked.is_empty() || is_asked("default"));
    let mut text = String::new();
    for Section { name, is_default, write } in SECTIONS {
        if has_all || has_default && is_default || is_asked(name) {
            let mut title = name.to_owned();
            title[..1].make_ascii_uppercase();
            let separator = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{separator}# {title}\r\n");
            write(call, &mut text);
        }
    }
    call.reply.text(&text);
    Ok(())
}

/// Appends a line for each field.
fn fields(text: &mut String, fields: &[(&str, &dyn std::fmt::Display)]) {
    for (name, value) in fields {
        let _ = write!(text, "{name}:{value}\r\n");
    }
}

/// Writes a line for each credential that was read from files, and for each certificate.
fn credentials(call: &Call<'_>, text: &mut String) {
    let all: Vec<_> = call.shared.credentials.iter().map(Credential::status).collect();
    for (at, status) in all.iter().enumerate() {
        let files: Vec<String> = status.files.iter().map(|path| path.display().to_string()).collect();
        let _ = write!(
            text,
            "credential{at}:what={},files={},loaded={},loads={},failures={},failing={}\r\n",
            status.what,
            files.join(";"),
            unix_seconds(status.loaded),
            status.loads,
            status.failures,
            u8::from(status.failure.is_some())
        );
    }
    for (at, end) in all.iter().flat_map(|status| &status.expiries).enumerate() {
        let _ = write!(
            text,
            "certificate{at}:file={},expires={}\r\n",
            end.path.display(),
            unix_seconds(end.until)
        );
    }
}

fn server(call: &Call<'_>, text: &mut String) {
    let uptime = call.shared.since.elapsed().as_secs();
    fields(
        text,
        &[
            ("redis_version", &REDIS_VERSION),
            ("redis_mode", &"standalone"),
            ("darter_version", &env!("CARGO_PKG_VERSION")),
            ("os", &std::env::consts::OS),
            ("arch_bits", &usize::BITS),
            ("process_id", &std::process::id()),
            ("tcp_port", &call.client.info.local.port()),
            ("server_time_usec", &now_us()),
            ("uptime_in_seconds", &uptime),
            ("uptime_in_days", &(uptime / 86_400)),
            ("worker_threads", &call.shared.options.threads),
        ],
    );
}

fn clients(call: &Call<'_>, text: &mut String) {
    fields(
        text,
        &[
            ("connected_clients", &call.shared.clients.count()),
            ("maxclients", &call.shared.options.connections_max),
            ("blocked_clients", &call.shared.clients.waiting()),
            ("tracking_clients", &call.shared.tracking.counts().clients),
            ("connected_gateways", &call.shared.peers.count()),
        ],
    );
}

/// Returns the resident memory of this process and its peak, if the system reports them. It includes
/// only the cached part of a pool in a file or on memory nodes.
pub(super) fn process_bytes() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some((bytes("VmRSS:")?, bytes("VmHWM:")?))
}

/// Returns the bytes of the buffers of all clients, and of those kept for later ones.
pub(super) fn buffer_bytes(shared: &GatewayState) -> u64 {
    shared.held_bytes.load(Ordering::Relaxed) as u64 + shared.sums().spare_bytes
}

fn memory(call: &Call<'_>, text: &mut String) {
    if let Some((bytes, peak)) = process_bytes() {
        fields(text, &[("used_memory", &bytes), ("used_memory_rss", &bytes), ("used_memory_peak", &peak)]);
    }
    let shared = call.shared;
    let buffers = buffer_bytes(shared);
    fields(text, &[("mem_clients_normal", &buffers), ("maxmemory", &0), ("maxmemory_policy", &"noeviction")]);
    #[cfg(feature = "scripts")]
    {
        let (scripts, bytes) = shared.scripts.cache().size();
        fields(text, &[("number_of_cached_scripts", &scripts), ("used_memory_scripts", &bytes)]);
    }
}

fn persistence(call: &Call<'_>, text: &mut String) {
    let capabilities = call.shared.store.pool().fabric().capabilities();
    let is_kept = u8::from(capabilities.persistent);
    let durability = capabilities.durability.name();
    fields(text, &[("loading", &0), ("pool_persistent", &is_kept), ("pool_durability", &durability)]);
}

fn stats(call: &Call<'_>, text: &mut String) {
    let since = call.shared.since_reset();
    let longest_turn = call.shared.sums().longest_turn_bytes;
    let [channels, patterns, shards] = call.shared.pubsub.sizes();
    let tracked = call.shared.tracking.counts();
    fields(
        text,
        &[
            ("total_connections_received", &since.accepted),
            ("total_commands_processed", &since.details.iter().map(|details| details.calls).sum::<u64>()),
            ("rejected_connections", &since.refused),
            ("expired_keys", &since.expired),
            ("pubsub_channels", &channels),
            ("pubsub_patterns", &patterns),
            ("pubsubshard_channels", &shards),
            ("tracking_total_keys", &tracked.keys),
            ("tracking_total_items", &tracked.items),
            ("tracking_total_prefixes", &tracked.prefixes),
            ("total_error_replies", &since.errors),
            ("longest_turn_bytes", &longest_turn),
        ],
    );
}

fn replication(_: &Call<'_>, text: &mut String) {
    fields(text, &[("role", &"master"), ("connected_slaves", &0), ("master_repl_offset", &0)]);
}

/// Returns the processor seconds in user mode and in the kernel from a `stat` file in /proc: of the
/// process or thread itself, and of its children that have exited.
fn processor_seconds(stat: &str) -> Option<[[f64; 2]; 2]> {
    let stat = std::fs::read_to_string(stat).ok()?;
    // The name in parentheses may hold any bytes; the times are fields 14 to 17.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut ticks = rest.split_whitespace().skip(11).map(str::parse::<f64>);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut next = || Some(ticks.next()?.ok()? / per_second);
    Some([[next()?, next()?], [next()?, next()?]])
}

fn cpu(_: &Call<'_>, text: &mut String) {
    let own = processor_seconds("/proc/self/stat");
    let thread = processor_seconds("/proc/thread-self/stat");
    let (Some([[user, system], [user_children, system_children]]), Some([[user_thread, system_thread], _])) =
        (own, thread)
    else {
        return;
    };
    for (name, seconds) in [
        ("used_cpu_sys", system),
        ("used_cpu_user", user),
        ("used_cpu_sys_children", system_children),
        ("used_cpu_user_children", user_children),
        ("used_cpu_sys_main_thread", system_thread),
        ("used_cpu_user_main_thread", user_thread),
    ] {
        let _ = write!(text, "{name}:{seconds:.6}\r\n");
    }
}

fn command_stats(call: &Call<'_>, text: &mut String) {
    for (command, details) in TABLE.iter().zip(call.shared.since_reset().details) {
        if details.calls + details.rejected == 0 {
            continue;
        }
        let micros = details.nanos / 1000;
        let each = if details.calls == 0 { 0.0 } else { details.nanos as f64 / 1e3 / details.calls as f64 };
        let _ = write!(
            text,
            "cmdstat_{}:calls={},usec={micros},usec_per_call={each:.2},rejected_calls={},failed_calls={}\r\n",
            command.name, details.calls, details.rejected, details.failed,
        );
    }
}

fn error_stats(call: &Call<'_>, text: &mut String) {
    for (code, count) in &*call.shared.counts.codes() {
        let _ = write!(text, "errorstat_{code}:count={count}\r\n");
    }
}

fn cluster(_: &Call<'_>, text: &mut String) {
    fields(text, &[("cluster_enabled", &0)]);
}

fn keyspace(call: &Call<'_>, text: &mut String) {
    for (number, counted) in call.shared.counts.databases.iter().enumerate() {
        let [keys, expiring] = counted.load();
        if keys > 0 {
            let _ = write!(text, "db{number}:keys={keys},expires={expiring},avg_ttl=0\r\n");
        }
    }
}
