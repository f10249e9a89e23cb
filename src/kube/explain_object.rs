//! Explains why an object has its series, or none.
//!
//! The checks follow the path of an object: kind, scope, state of the list/watch, API server, shard, limits, store. The API
//! server is asked for the metadata of one object, with a list like those of the pipeline, for which the same permission
//! suffices.

use std::sync::Arc;
use std::time::SystemTime;

use ::kube::api::{DynamicObject, ObjectList};
use ::kube::core::PartialObjectMeta;
use http::Request;
use http::header::ACCEPT;

use super::api_resource::Scope;
use super::client::{Client, ClientError};
use super::follow::machine::State;
use super::follow::progress::Progress;
use super::pipeline::PipelineHandle;
use super::selector::escape;
use super::shard::{Ownership, Shard};
use crate::cache::Family;
use crate::status::words::{count, duration};
use crate::status::{FAMILIES, FamilySeries, ObjectExplanation, ObjectName};

/// The preferred representation: metadata, without the data of a secret. Servers that do not support it send objects.
const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Explains an object. It sends up to four requests to the API server.
pub(crate) async fn explain(
    handle: &PipelineHandle,
    client: &Client,
    object: ObjectName,
) -> ObjectExplanation {
    let mut told = ObjectExplanation::new(object);
    let Some(progress) = find(&handle.lists(), &mut told) else { return told };
    let scope = progress.scope().clone();
    let is_current = add_freshness(&progress, &mut told);
    let Some(uid) = find_uid(client, &scope, &mut told).await else { return told };
    let place = progress.place(uid.as_bytes());
    add_shard(place.shard, uid.as_bytes(), &mut told);
    if place.rejected {
        let text = "a limit leaves it without series: see --limit.series-per-kind and the other --limit \
                    flags, and `over budget` in `kstatd status`";
        told.add("budgets", Some(false), text.to_owned());
    } else if place.families.is_none()
        && let Some((objects, limit)) = place.quota
        && objects >= limit
    {
        let (objects, limit) = (count(objects as u64), count(limit as u64));
        let text =
            format!("--object-limit is {limit}, and there are {objects} objects with series");
        told.add("object limit", Some(false), text);
    }
    if place.families.is_none()
        && let Some(after) = scope.drop_completed_after
        && is_completed(client, &scope, &told.object).await
    {
        let after = duration(after.as_secs_f64());
        let text = format!("it completed more than {after} ago (--drop-completed-pods-after)");
        told.add("completed", Some(false), text);
    }
    if let Some(series) = place.families {
        told.series = series.iter().sum();
        add_families(&progress.schema().families, &series, &scope, &mut told);
    } else if told.checks.iter().all(|check| check.passed != Some(false)) {
        let text = if is_current {
            "the process has not received it yet, or could not read it: the log names malformed objects"
        } else {
            "the process has not received it"
        };
        told.add("cache", Some(false), text.to_owned());
    }
    told
}

/// Finds the list/watch that has the object.
fn find(lists: &[Arc<Progress>], told: &mut ObjectExplanation) -> Option<Arc<Progress>> {
    let ObjectName { resource, namespace, .. } = told.object.clone();
    let is_kind = |progress: &&Arc<Progress>| {
        let api = &progress.scope().api;
        api.plural == resource || api.name() == resource || api.kind.eq_ignore_ascii_case(&resource)
    };
    let of_kind: Vec<_> = lists.iter().filter(is_kind).collect();
    let Some(first) = of_kind.first() else {
        let text = format!(
            "{resource} is not watched: --resources and the custom resource configuration select the kinds"
        );
        told.add("kind", Some(false), text);
        return None;
    };
    let api = first.scope().api.clone();
    told.add("kind", Some(true), format!("{} is watched", api.name()));
    if api.namespaced == namespace.is_empty() {
        let form = if api.namespaced { "NAMESPACE/NAME" } else { "NAME, without a namespace" };
        told.add("namespace", Some(false), format!("objects of {} are named {form}", api.name()));
        return None;
    }
    let has = |progress: &&&Arc<Progress>| {
        progress.scope().namespace.as_ref().is_none_or(|own| *own == namespace)
    };
    // The state that is served before one that replaces it.
    let mut own: Vec<_> = of_kind.iter().filter(has).collect();
    own.sort_by_key(|progress| !progress.is_shown());
    let denied = format!("metadata.namespace!={}", escape(&namespace));
    let is_denied = |progress: &Progress| {
        api.namespaced && progress.scope().selector.split(',').any(|term| term == denied)
    };
    match own.first() {
        Some(progress) if !is_denied(progress) => {
            if api.namespaced {
                let scope = match progress.scope().namespace {
                    Some(_) => "is one of --namespaces",
                    None => "all namespaces are watched",
                };
                told.add("namespace", Some(true), format!("{namespace}: {scope}"));
            }
            Some(Arc::clone(progress))
        }
        Some(_) => {
            told.add("namespace", Some(false), format!("{namespace} is in --namespaces-denylist"));
            None
        }
        None => {
            let watched: Vec<_> =
                of_kind.iter().filter_map(|progress| progress.scope().namespace.clone()).collect();
            let text = format!("{namespace} is not one of --namespaces: {}", watched.join(", "));
            told.add("namespace", Some(false), text);
            None
        }
    }
}

/// Adds the state of the list/watch; returns true if its data is current.
fn add_freshness(progress: &Progress, told: &mut ObjectExplanation) -> bool {
    let status = progress.status();
    let age = status.current().and_then(|at| SystemTime::now().duration_since(at).ok());
    let age = age.map_or("unknown".to_owned(), |age| duration(age.as_secs_f64()));
    let (passed, text) = match &status.failure {
        _ if status.given_up => (
            false,
            "the API server has denied it for longer than --staleness-limit, so nothing is served"
                .to_owned(),
        ),
        Some(failure) => (false, format!("{}; the data is {age} old", failure.message)),
        None if status.listed.is_none() => (false, "the first list is not complete".to_owned()),
        None => (true, format!("the data is {age} old")),
    };
    told.add("list/watch", Some(passed), text);
    passed
}

/// Asks the API server for the object; returns its UID if the selector of the list/watch includes it.
async fn find_uid(client: &Client, scope: &Scope, told: &mut ObjectExplanation) -> Option<String> {
    let named = format!("metadata.name={}", escape(&told.object.name));
    let namespace = told.object.namespace.clone();
    let uid = match ask(client, scope, &namespace, (&named, "")).await {
        Ok(Some(uid)) => uid,
        Ok(None) => {
            told.add("API server", Some(false), "it has no such object".to_owned());
            return None;
        }
        Err(error) => {
            told.add("API server", None, format!("cannot be asked: {error}"));
            return None;
        }
    };
    told.add("API server", Some(true), format!("it has the object, UID {uid}"));
    let selected = format!("{named},{}", scope.selector);
    for (selector, fields, labels, flags) in [
        (&scope.selector, &selected, "", "--node, --track-unscheduled-pods, --field-selector"),
        (&scope.labels, &named, &*scope.labels, "--selector"),
    ] {
        if selector.is_empty() {
            continue;
        }
        match ask(client, scope, &namespace, (fields, labels)).await {
            Ok(Some(_)) => told.add("selector", Some(true), format!("{selector} includes it")),
            Ok(None) => {
                told.add("selector", Some(false), format!("{selector} excludes it ({flags})"));
                return None;
            }
            Err(error) => told.add("selector", None, format!("cannot be checked: {error}")),
        }
    }
    Some(uid)
}

/// Returns whether the API server says that a pod has succeeded or failed.
async fn is_completed(client: &Client, scope: &Scope, object: &ObjectName) -> bool {
    let name = escape(&object.name);
    let fields = format!("metadata.name={name},status.phase!=Succeeded,status.phase!=Failed");
    ask(client, scope, &object.namespace, (&fields, "")).await.is_ok_and(|pod| pod.is_none())
}

/// Returns the UID of the object with these fields and labels, if there is one.
async fn ask(
    client: &Client,
    scope: &Scope,
    namespace: &str,
    (fields, labels): (&str, &str),
) -> Result<Option<String>, ClientError> {
    let asked = Scope {
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        selector: fields.to_owned(),
        labels: labels.to_owned(),
        ..scope.clone()
    };
    let url = asked.request(&State::Checking { version: String::new() }, Some(1), 0);
    let answer = async {
        let request = Request::get(url).header(ACCEPT, METADATA).body(Vec::new());
        let request = request.map_err(::kube::Error::HttpError)?;
        client.api().request::<ObjectList<PartialObjectMeta<DynamicObject>>>(request).await
    };
    let list = client.answer(answer).await?;
    Ok(list.items.into_iter().next().and_then(|object| object.metadata.uid))
}

/// Adds the shard that the object belongs to, if there are several.
fn add_shard(shard: Shard, uid: &[u8], told: &mut ObjectExplanation) {
    if shard == Shard::ALL {
        return;
    }
    let (index, total) = (shard.index, shard.total);
    let (passed, text) = match shard.ownership(uid) {
        Ownership::Foreign => {
            let owner = shard.owner(uid);
            (false, format!("it belongs to shard {owner} of {total}, and this is shard {index}"))
        }
        Ownership::Kept => (true, format!("it belongs to this shard, {index} of {total}")),
        _ => (true, format!("it moves between shards; this is shard {index} of {total}")),
    };
    told.add("shard", Some(passed), text);
}

/// Adds the families of the kind.
fn add_families(families: &[Family], series: &[u64], scope: &Scope, told: &mut ObjectExplanation) {
    let mut own: Vec<FamilySeries> = Vec::new();
    for (family, &series) in families.iter().zip(series) {
        match own.last_mut().filter(|last| last.name == family.name) {
            Some(last) => last.series += series,
            None => own.push(FamilySeries { name: family.name.clone(), series }),
        }
    }
    let registry = crate::resources::registry().iter();
    let all = registry.filter(|resource| {
        let api = resource.api();
        (api.name, api.group) == (&*scope.api.plural, &*scope.api.group)
    });
    let all = all.flat_map(|resource| resource.families()).map(|family| family.name.to_owned());
    let is_disabled = |name: &String| !families.iter().any(|family| family.name == *name);
    told.disabled_families = all.filter(is_disabled).take(FAMILIES).collect();
    own.truncate(FAMILIES);
    told.families = own;
}
