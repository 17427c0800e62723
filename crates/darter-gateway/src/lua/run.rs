//! How a client's task runs a script: starts a thread's work, executes the commands that the script
//! calls, and gets the reply.

use super::machine::Machine;
use super::task::{Ask, Link, Outcome, Purpose, Task};
use super::{Stop, Words};
use crate::call::Call;
use crate::fault::Fault;
use crate::reply::Reply;
use darter_fabric::wire::Outbox;
use std::cell::RefCell;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::time::Instant;

/// How long a script may exceed its time before its client gets the error, though the script is in
/// a function of Lua that cannot be stopped.
const GRACE: Duration = Duration::from_secs(1);

/// Most Lua states that a thread keeps for the scripts that have run in it.
const KEPT_MAX: usize = 8;

thread_local! {
    /// A Lua state for a script that has none in this thread.
    static SPARE: RefCell<Option<Machine>> = const { RefCell::new(None) };
    /// The states of the scripts that have run last in this thread, the last at the end.
    static KEPT: RefCell<Vec<Machine>> = const { RefCell::new(Vec::new()) };
}

/// Returns the state in which a script has run before, if it is kept.
fn kept(task: &Task) -> Option<Machine> {
    KEPT.with_borrow_mut(|kept| {
        let at = kept.iter().rposition(|machine| machine.is_for(task))?;
        Some(kept.remove(at))
    })
}

/// Keeps a state for the next run of its script.
fn keep(machine: Machine) {
    KEPT.with_borrow_mut(|kept| {
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(machine);
    });
}

/// Does a thread's work, and executes the commands that it calls by `command`, as the purpose says.
///
/// # Errors
/// The store's errors, and those of a script that was stopped: its transaction must be discarded.
pub(crate) async fn run(
    call: &mut Call<'_>,
    task: Task,
    command: impl AsyncFn(&mut Call<'_>, Purpose) -> Result<(), Fault>,
) -> Result<Outcome, Fault> {
    let shared = call.shared;
    let Some(slot) = call.client.slot.take() else {
        return Err(Fault::said(
            "BUSY all threads for scripts are in use; try again, or stop a script with SCRIPT KILL",
        ));
    };
    let (name, is_function, is_read_only) = match &task {
        Task::Call(invocation) => (invocation.name.clone(), invocation.is_function, invocation.is_read_only),
        Task::Compile(_) => (String::new(), false, true),
        Task::Load(_) => (String::new(), true, true),
    };
    let running = shared.scripts.enter(name, is_function);
    let (asks, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let (answer, answers) = mpsc::channel();
    let options = &shared.options;
    let link = Link {
        control: Arc::clone(&running.control),
        asks: asks.clone(),
        answers,
        memory_max: options.script_bytes_max,
        reply_bytes_max: options.output_bytes_max,
    };
    tokio::task::spawn_blocking(move || {
        let machine = kept(&task).or_else(|| SPARE.take()).map_or_else(Machine::new, Ok);
        let (outcome, goes_on) = match &machine {
            Ok(machine) => machine.perform(&task, link),
            Err(error) => (Outcome::Failed(format!("ERR {error}")), false),
        };
        // The client's task may have ended.
        let _ = asks.send(Ask::Ended(outcome, slot));
        if let Ok(machine) = machine
            && goes_on
        {
            keep(machine);
        }
        if SPARE.with_borrow(Option::is_none) {
            SPARE.set(Machine::new().ok());
        }
    });
    let end = Instant::from_std(running.control.since) + options.script_time + GRACE;
    loop {
        match tokio::time::timeout_at(end, asked.recv()).await {
            Ok(Some(Ask::Command(words, is_resp3))) => {
                let purpose = if is_read_only { Purpose::Read } else { Purpose::Run };
                let reply = execute(call, &words, is_resp3, purpose, &command).await?;
                // A thread that has ended needs no answer.
                let _ = answer.send(reply);
            }
            Ok(Some(Ask::Permission(words))) => {
                let reply = execute(call, &words, false, Purpose::Permission, &command).await?;
                let _ = answer.send(reply);
            }
            Ok(Some(Ask::Ended(outcome, slot))) => {
                call.client.slot = Some(slot);
                return match outcome {
                    Outcome::Stopped(stop) => Err(stopped(call, stop)),
                    outcome => Ok(outcome),
                };
            }
            Ok(None) => return Err(Fault::ended("ERR the thread of the script has failed")),
            Err(_) => return Err(stopped(call, Stop::Late)),
        }
    }
}

/// Returns the error of a script that was stopped.
fn stopped(call: &Call<'_>, stop: Stop) -> Fault {
    let options = &call.shared.options;
    Fault::ended(match stop {
        Stop::Killed | Stop::Abandoned => {
            "ERR Error running script: Script killed by user with SCRIPT KILL; nothing was executed"
                .to_owned()
        }
        Stop::Late => format!(
            "ERR Error running script: stopped after {} ms (--script-ms); nothing was executed",
            options.script_time.as_millis()
        ),
        Stop::Memory => format!(
            "ERR Error running script: not enough memory, more than {} bytes (--script-bytes); nothing was executed",
            options.script_bytes_max
        ),
    })
}

/// Executes a command of a script, and returns its reply.
async fn execute(
    call: &mut Call<'_>,
    words: &Words,
    is_resp3: bool,
    purpose: Purpose,
    command: impl AsyncFn(&mut Call<'_>, Purpose) -> Result<(), Fault>,
) -> Result<Vec<u8>, Fault> {
    let mut out = Outbox::default();
    let Call { keys, client, shared, .. } = call;
    let reply = Reply::new(&mut out, is_resp3);
    let mut inner = Call { args: words.arguments(), keys, reply, client, shared };
    command(&mut inner, purpose).await?;
    Ok(out.into_bytes())
}
