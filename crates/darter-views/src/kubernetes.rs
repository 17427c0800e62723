//! Kubernetes: a `ConfigMap` for each group, changed by `PUT` with the `resourceVersion` that was
//! read. A read without a `resourceVersion` is linearizable: the API server reads from its etcd.

use crate::StoreError;
use crate::engine::{Engine, Revision, Stored};
use crate::http::{Addresses, Answer, token_in};
use serde_json::json;
use std::path::PathBuf;
use ureq::http::Method;

/// The entry of the `ConfigMap` that holds the view.
const ENTRY: &str = "view";

/// One `ConfigMap`.
pub(crate) struct Kubernetes {
    addresses: Addresses,
    namespace: String,
    object: String,
    /// The file with the token, which Kubernetes replaces from time to time.
    token: PathBuf,
}

impl Kubernetes {
    /// Creates the engine for a `ConfigMap`, which need not exist.
    pub(crate) fn new(addresses: Addresses, namespace: &str, object: &str, token: PathBuf) -> Self {
        Self { addresses, namespace: namespace.to_owned(), object: object.to_owned(), token }
    }

    fn call(&mut self, method: &Method, with_object: bool, body: &str) -> Result<Answer, StoreError> {
        let token = token_in(&self.token)
            .map_err(|why| StoreError::File { path: self.token.display().to_string(), why })?;
        let headers = [("Authorization", format!("Bearer {token}"))];
        let mut path = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        if with_object {
            path = format!("{path}/{}", self.object);
        }
        self.addresses.send(method, &path, &headers, body)
    }
}

impl Engine for Kubernetes {
    fn name(&self) -> String {
        format!("ConfigMap {} of namespace {}", self.object, self.namespace)
    }

    fn read(&mut self) -> Result<Stored, StoreError> {
        let answer = self.call(&Method::GET, true, "")?;
        let found = answer.json()?;
        // A server that replies 404 without this is not an API server.
        if answer.status == 404 && found["reason"] == "NotFound" {
            return Ok(Stored { text: None, revision: Revision::Absent });
        }
        if answer.status != 200 {
            return Err(answer.refused());
        }
        let version = found["metadata"]["resourceVersion"].as_str();
        let version = version.ok_or_else(|| self.damaged("it has no resourceVersion"))?;
        let text = found["data"][ENTRY].as_str().ok_or_else(|| self.damaged("it has no entry `view`"))?;
        Ok(Stored { text: Some(text.to_owned()), revision: Revision::At(version.to_owned()) })
    }

    fn compare_and_set(&mut self, expected: Revision, text: &str) -> Result<bool, StoreError> {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": self.object, "namespace": self.namespace },
            "data": { ENTRY: text },
        });
        let (method, with_object) = match expected {
            Revision::Absent => (Method::POST, false),
            Revision::At(version) => {
                object["metadata"]["resourceVersion"] = version.into();
                (Method::PUT, true)
            }
        };
        let answer = self.call(&method, with_object, &object.to_string())?;
        match answer.status {
            200 | 201 => Ok(true),
            409 => Ok(false),
            // The object was deleted after it was read; any other 404 is an error.
            404 if with_object && answer.json()?["details"]["kind"] == "configmaps" => Ok(false),
            _ => Err(answer.refused()),
        }
    }
}
