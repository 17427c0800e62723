//! etcd, through its JSON gateway (`/v3/kv/range`, `/v3/kv/txn`), which every etcd since 3.4 serves
//! at its client port. Reads are linearizable by default.

use crate::StoreError;
use crate::engine::{Engine, Revision, Stored, decoded};
use crate::http::{Addresses, Answer};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use ureq::http::Method;

/// The account for an etcd that requires authentication.
pub(crate) struct Account {
    pub user: String,
    pub password: String,
}

/// One key of etcd.
pub(crate) struct Etcd {
    addresses: Addresses,
    key: String,
    account: Option<Account>,
    /// The account's token, until etcd rejects it.
    token: Option<String>,
}

impl Etcd {
    /// Creates the engine for a key at these addresses.
    pub(crate) fn new(addresses: Addresses, key: String, account: Option<Account>) -> Self {
        Self { addresses, key, account, token: None }
    }

    fn call(&mut self, path: &str, body: &Value) -> Result<Value, StoreError> {
        let body = body.to_string();
        let mut is_new = false;
        loop {
            if let (Some(account), None) = (&self.account, &self.token) {
                let names = json!({ "name": account.user, "password": account.password }).to_string();
                let answer = self.addresses.send(&Method::POST, "/v3/auth/authenticate", &[], &names)?;
                let token = answer.json()?["token"].as_str().map(str::to_owned);
                self.token = Some(token.ok_or_else(|| answer.refused())?);
                is_new = true;
            }
            let headers: Vec<_> = self.token.iter().map(|token| ("Authorization", token.clone())).collect();
            let answer = self.addresses.send(&Method::POST, path, &headers, &body)?;
            if answer.status == 200 {
                return answer.json();
            }
            if self.token.take().is_none() || is_new || !is_old_token(&answer) {
                return Err(answer.refused());
            }
        }
    }
}

/// Returns whether etcd rejected the token as unknown.
fn is_old_token(answer: &Answer) -> bool {
    answer.status == 401 || answer.body.contains("invalid auth token")
}

impl Engine for Etcd {
    fn name(&self) -> String {
        format!("etcd key {}", self.key)
    }

    fn read(&mut self) -> Result<Stored, StoreError> {
        let found = self.call("/v3/kv/range", &json!({ "key": BASE64_STANDARD.encode(&self.key) }))?;
        let Some(pair) = found["kvs"].as_array().and_then(|pairs| pairs.first()) else {
            return Ok(Stored { text: None, revision: Revision::Absent });
        };
        // Numbers of 64 bits are strings in protobuf's JSON.
        let revision = pair["mod_revision"].as_str().ok_or_else(|| self.damaged("it has no mod_revision"))?;
        let text = decoded(&pair["value"]).ok_or_else(|| self.damaged("its value is not text in base64"))?;
        Ok(Stored { text: Some(text), revision: Revision::At(revision.to_owned()) })
    }

    fn compare_and_set(&mut self, expected: Revision, text: &str) -> Result<bool, StoreError> {
        let key = BASE64_STANDARD.encode(&self.key);
        let revision = match expected {
            Revision::Absent => "0".to_owned(),
            Revision::At(revision) => revision,
        };
        let compared = json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision });
        let transaction = json!({
            "compare": [compared],
            "success": [{ "requestPut": { "key": key, "value": BASE64_STANDARD.encode(text) } }],
        });
        let done = self.call("/v3/kv/txn", &transaction)?;
        // etcd omits `false` values.
        Ok(done["succeeded"].as_bool().unwrap_or(false))
    }
}
