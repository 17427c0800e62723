//! Consul's key-value store: `GET /v1/kv/KEY?consistent`, `PUT /v1/kv/KEY?cas=INDEX`.

use crate::StoreError;
use crate::engine::{Engine, Revision, Stored, decoded};
use crate::http::Addresses;
use ureq::http::Method;

/// One key of Consul.
pub(crate) struct Consul {
    addresses: Addresses,
    key: String,
    token: Option<String>,
}

impl Consul {
    /// Creates the engine for a key at these addresses.
    pub(crate) fn new(addresses: Addresses, key: String, token: Option<String>) -> Self {
        Self { addresses, key, token }
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        self.token.iter().map(|token| ("X-Consul-Token", token.clone())).collect()
    }
}

impl Engine for Consul {
    fn name(&self) -> String {
        format!("Consul key {}", self.key)
    }

    fn read(&mut self) -> Result<Stored, StoreError> {
        let path = format!("/v1/kv/{}?consistent", self.key);
        let answer = self.addresses.send(&Method::GET, &path, &self.headers(), "")?;
        // An empty body means that the key does not exist; any other body is an error.
        if answer.status == 404 && answer.body.trim().is_empty() {
            return Ok(Stored { text: None, revision: Revision::Absent });
        }
        if answer.status != 200 {
            return Err(answer.refused());
        }
        let found = answer.json()?;
        let index = found[0]["ModifyIndex"].as_u64().ok_or_else(|| self.damaged("it has no ModifyIndex"))?;
        let text =
            decoded(&found[0]["Value"]).ok_or_else(|| self.damaged("its value is not text in base64"))?;
        Ok(Stored { text: Some(text), revision: Revision::At(index.to_string()) })
    }

    fn compare_and_set(&mut self, expected: Revision, text: &str) -> Result<bool, StoreError> {
        // Index 0 means that the key must not exist.
        let index = match expected {
            Revision::Absent => "0".to_owned(),
            Revision::At(index) => index,
        };
        let path = format!("/v1/kv/{}?cas={index}", self.key);
        let answer = self.addresses.send(&Method::PUT, &path, &self.headers(), text)?;
        match (answer.status, answer.body.trim()) {
            (200, "true") => Ok(true),
            (200, "false") => Ok(false),
            _ => Err(answer.refused()),
        }
    }
}
