//! A headless chromium, driven over its debugging pipe.

use crate::door::has;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// A browser with one page.
pub struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    /// Exceptions of scripts, and errors logged by the browser, such as violations of the content
    /// security policy.
    pub problems: Vec<Value>,
    _profile: TempDir,
}

/// The browser finds the pipe's ends at descriptors 3 and 4.
const START: &str = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                     --hide-scrollbars --remote-debugging-pipe --user-data-dir=\"$1\" about:blank \
                     3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";

impl Browser {
    /// Starts a browser, if one is installed.
    pub fn start() -> Option<Self> {
        if !has("chromium", &["--version"]) {
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", START, "sh"])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let messages = BufReader::new(child.stdout.take().unwrap());
        let (session, calls, problems) = (None, 0, Vec::new());
        let mut browser = Self { child, requests, messages, session, calls, problems, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, &json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the debugging protocol, and returns its result.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut request = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut message = Vec::new();
            assert!(self.messages.read_until(0, &mut message).unwrap() > 0, "the browser has ended");
            let mut message: Value = serde_json::from_slice(&message[..message.len() - 1]).unwrap();
            let is_problem = message["method"] == "Runtime.exceptionThrown"
                || message["params"]["entry"]["level"] == "error";
            if is_problem {
                self.problems.push(message["params"].take());
            } else if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// Gives the page a size, and light or dark colours.
    pub fn shape(&mut self, width: u32, is_dark: bool) {
        let size = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Opens an address in a fresh page.
    pub fn open(&mut self, url: &str) {
        // The address may differ only in its fragment, which would not load the page again.
        self.call("Page.navigate", &json!({ "url": "about:blank" }));
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// Returns the value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut told = self.call("Runtime.evaluate", &parameters);
        assert!(told["exceptionDetails"].is_null(), "{expression}: {told}");
        told["result"]["value"].take()
    }

    /// Returns the text of the element with an id, with single spaces; empty if there is no such
    /// element.
    pub fn text(&mut self, id: &str) -> String {
        let text = self.eval(&format!("(document.getElementById('{id}') || {{ innerText: '' }}).innerText"));
        text.as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
