//! A gateway as a process.

use crate::daemon::{Client, Daemon};

#[test]
fn a_gateway_ends_on_signals() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = Daemon::gateway("mem:32M", "127.0.0.1:0");
        let mut client = Client::new(&gateway.address);
        assert_eq!(client.ask("set a b").unwrap().0, "+OK");
        kill_process(Pid::from_child(&gateway.child), signal).unwrap();
        assert!(gateway.child.wait().unwrap().success(), "{signal:?}");
        assert!(client.ask("get a").is_none());
    }
}
