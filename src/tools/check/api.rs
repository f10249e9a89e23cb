//! Reads the objects to check from the API server.

use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::timeout;

use super::inventory::{Inventory, MONITORING, RBAC, Selection};
use super::workload;
use crate::kube::Client;
use crate::kube::client::Refusal;
use crate::tools::manifests::{self, Manifest};
use crate::tools::{CommandError, Result};

/// The timeout of a request.
const ANSWER: Duration = Duration::from_secs(30);

/// The maximum size of an answer in bytes: a page of the largest objects.
const MAX_ANSWER: usize = 512 << 20;

/// The number of objects in a page.
const PAGE: u32 = 250;

impl Inventory {
    /// Reads the workloads that the user asks about, with the objects that refer to them and that they refer to.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn read(client: &Client, selection: &Selection) -> Result<Self> {
        let mut inventory = Self::default();
        inventory.read_workloads(client, selection).await?;
        let found = workload::find(&inventory, selection);
        let places = found.iter().map(|found| found.namespace().unwrap_or_default().to_owned());
        for namespace in places.collect::<BTreeSet<String>>() {
            let path = format!("/api/v1/namespaces/{namespace}/services");
            inventory.list(client, &path, "", |_| true).await?;
        }
        inventory.read_config_maps(client, selection).await?;
        for plural in
            ["v1/servicemonitors", "v1/podmonitors", "v1alpha1/scrapeconfigs", "v1/prometheusrules"]
        {
            let path = format!("/apis/{MONITORING}/{plural}");
            inventory.list(client, &path, "", |_| true).await?;
        }
        let dashboards = "labelSelector=grafana_dashboard";
        inventory.list(client, "/api/v1/configmaps", dashboards, |_| true).await?;
        if inventory.may_have_custom_resources(selection) {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            inventory.list(client, path, "", |_| true).await?;
        }
        Ok(inventory)
    }

    /// Reads the workloads that the user asks about.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn read_workloads(
        &mut self,
        client: &Client,
        selection: &Selection,
    ) -> Result<()> {
        let place = scope(selection.namespace.as_deref());
        for plural in ["deployments", "statefulsets", "daemonsets"] {
            let keep = |one: &Manifest| workload::of(one, selection).is_some();
            self.list(client, &format!("/apis/apps/v1/{place}{plural}"), "", keep).await?;
        }
        Ok(())
    }

    /// Reads the config maps that the volumes of the workloads show.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn read_config_maps(
        &mut self,
        client: &Client,
        selection: &Selection,
    ) -> Result<()> {
        let found = workload::find(self, selection);
        let paths = found.iter().flat_map(|found| {
            let namespace = found.namespace().unwrap_or_default();
            found
                .config_maps()
                .map(move |name| format!("/api/v1/namespaces/{namespace}/configmaps/{name}"))
        });
        for path in paths.collect::<BTreeSet<String>>() {
            self.read_object(client, &path).await?;
        }
        Ok(())
    }

    /// Reads one object, if it exists.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn read_object(&mut self, client: &Client, path: &str) -> Result<()> {
        self.page(client, path, &|_| true).await.map(drop)
    }

    /// Returns whether a flag or an options file may configure custom resources.
    fn may_have_custom_resources(&self, selection: &Selection) -> bool {
        let flags = workload::find(self, selection).into_iter().flat_map(|found| found.argv);
        let files = self.of("", "ConfigMap").map(|map| map.object["data"].to_string());
        let names = ["custom-resource-state", "custom_resource"];
        flags.chain(files).any(|text| names.iter().any(|name| text.contains(name)))
    }

    /// Reads the roles and bindings.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn read_bindings(&mut self, client: &Client) -> Result<()> {
        for plural in ["clusterrolebindings", "clusterroles", "rolebindings", "roles"] {
            self.list(client, &format!("/apis/{RBAC}/v1/{plural}"), "", |_| true).await?;
        }
        Ok(())
    }

    /// Reads the pods with these labels.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn read_pods(
        &mut self,
        client: &Client,
        namespace: Option<&str>,
        labels: &Value,
    ) -> Result<()> {
        let terms = labels.as_object().into_iter().flatten().filter_map(|(name, value)| {
            Some(format!("{}%3D{}", name.replace('/', "%2F"), value.as_str()?))
        });
        let selector = terms.collect::<Vec<_>>().join("%2C");
        let path = format!("/api/v1/{}pods", scope(namespace));
        self.list(client, &path, &format!("labelSelector={selector}"), |_| true).await
    }

    /// Lists a path in pages and keeps some objects. A path that is not served has none, and one that the caller may
    /// not list becomes a gap.
    async fn list(
        &mut self,
        client: &Client,
        path: &str,
        query: &str,
        keep: impl Fn(&Manifest) -> bool,
    ) -> Result<()> {
        let mut token = String::new();
        loop {
            let page = format!("{path}?limit={PAGE}&{query}&continue={token}");
            match self.page(client, &page, &keep).await? {
                Some(next) => token = next,
                None => return Ok(()),
            }
        }
    }

    /// Reads an object or a page of a list, and returns the token of the next page.
    async fn page(
        &mut self,
        client: &Client,
        path: &str,
        keep: &impl Fn(&Manifest) -> bool,
    ) -> Result<Option<String>> {
        let (code, body) = get(client, path).await?;
        let place = path.split('?').next().unwrap_or(path);
        match code {
            200 => {}
            404 => return Ok(None),
            _ => {
                self.gaps.push(format!("{place}: {code} {body}"));
                return Ok(None);
            }
        }
        let unreadable = |error: &dyn std::fmt::Display| format!("{place}: {error}");
        let mut objects = Vec::new();
        manifests::parse(place, &body, &mut objects).map_err(|error| unreadable(&error))?;
        self.objects.extend(objects.into_iter().filter(keep));
        let list: Value = serde_json::from_str(&body).map_err(|error| unreadable(&error))?;
        let next = list.pointer("/metadata/continue").and_then(Value::as_str);
        Ok(next.filter(|token| !token.is_empty()).map(str::to_owned))
    }
}

fn scope(namespace: Option<&str>) -> String {
    namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default()
}

/// Requests a path. Returns the status and the body, or the message of an unsuccessful answer.
///
/// # Errors
/// There is no answer.
async fn get(client: &Client, path: &str) -> Result<(u16, String)> {
    let url = client.url();
    let asking = async {
        let answer = client.get(path, "application/json", None).await?;
        let status = answer.status();
        if !status.is_success() {
            let refusal = Refusal::read(answer).await;
            return Ok((refusal.code, refusal.message));
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((status.as_u16(), String::from_utf8_lossy(&body).into_owned()))
    };
    match timeout(ANSWER, asking).await {
        Ok(answer) => {
            answer.map_err(|error: CommandError| format!("no answer from {url}: {error}").into())
        }
        Err(_) => Err(format!("no answer from {url} within {} s", ANSWER.as_secs()).into()),
    }
}
