//! `metadata` of every object, and references and selectors that several kinds share.

use crate::encode::Message;
use crate::layout::{Controller, Item, Layout, Workload};

/// Namespace and name of an object.
pub struct Name<'a> {
    /// The namespace, for namespaced kinds.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: String,
}

/// `metadata`; fields that are not set are omitted.
#[derive(Default)]
pub struct Meta<'a> {
    /// `generateName`.
    pub generate_name: &'a str,
    /// `generation`.
    pub generation: i64,
    /// `labels`, in byte order of the keys.
    pub labels: &'a [(&'a str, &'a str)],
    /// `annotations`, in byte order of the keys.
    pub annotations: &'a [(&'a str, &'a str)],
    /// The controlling owner.
    pub owner: Option<Owner<'a>>,
    /// `finalizers`.
    pub finalizers: &'a [&'a str],
    /// `managedFields`.
    pub managed: &'a [Managed<'a>],
}

/// A controlling owner.
pub struct Owner<'a> {
    /// `group/version`.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: String,
}

/// One entry of `managedFields`.
pub struct Managed<'a> {
    /// The manager of the fields.
    pub manager: &'a str,
    /// `group/version` in which they were set.
    pub api_version: &'a str,
    /// The subresource through which they were set.
    pub subresource: &'a str,
    /// Seconds since 1970 of the last change.
    pub time: i64,
    /// The fields as JSON.
    pub fields: &'a str,
}

impl Meta<'_> {
    /// Writes the field `metadata` of an object of `resource`.
    pub fn write(
        &self,
        m: &mut Message<'_>,
        layout: &Layout,
        resource: &str,
        item: &Item,
        name: &Name<'_>,
    ) {
        let uid = layout.uid(resource, item.index, item.incarnation);
        m.message(1, "metadata", |m| {
            m.text(1, "name", &name.name);
            m.text(2, "generateName", self.generate_name);
            m.text(3, "namespace", name.namespace.unwrap_or_default());
            m.text(4, "selfLink", "");
            m.text(5, "uid", &uid);
            m.text(6, "resourceVersion", itoa::Buffer::new().format(item.resource_version));
            m.int(7, "generation", self.generation);
            m.time(8, "creationTimestamp", item.created);
            m.text_map(11, "labels", self.labels.iter().copied());
            m.text_map(12, "annotations", self.annotations.iter().copied());
            m.messages(13, "ownerReferences", &self.owner, |m, owner| {
                m.text(1, "kind", owner.kind);
                m.text(3, "name", owner.name);
                m.text(4, "uid", &owner.uid);
                m.text(5, "apiVersion", owner.api_version);
                m.required_flag(6, "controller", true);
                m.required_flag(7, "blockOwnerDeletion", true);
            });
            m.texts(14, "finalizers", self.finalizers);
            m.messages(17, "managedFields", self.managed, |m, entry| {
                m.text(1, "manager", entry.manager);
                m.text(2, "operation", "Update");
                m.text(3, "apiVersion", entry.api_version);
                m.time(4, "time", entry.time);
                m.text(6, "fieldsType", "FieldsV1");
                m.fields_v1(7, "fieldsV1", entry.fields);
                m.text(8, "subresource", entry.subresource);
            });
        });
    }
}

/// A condition: type, status, reason, message.
pub type Condition = (&'static str, &'static str, &'static str, &'static str);

/// `True` or `False`.
pub fn status_of(yes: bool) -> &'static str {
    if yes { "True" } else { "False" }
}

/// A label selector on `app`.
pub fn app_selector(m: &mut Message<'_>, tag: u32, name: &str, app: &str) {
    m.message(tag, name, |m| m.text_map(1, "matchLabels", [("app", app)]));
}

/// Returns the labels of every object of a workload.
pub fn workload_labels(workload: &Workload) -> [(&'static str, &str); 4] {
    [
        ("app", &workload.name),
        ("app.kubernetes.io/name", &workload.name),
        ("app.kubernetes.io/part-of", workload.part_of),
        ("team", workload.team),
    ]
}

/// Returns the name of an object that is named after its workload.
pub fn like_workload<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let workload = layout.workload(item.workload);
    Name { namespace: Some(layout.namespace(workload.namespace)), name: workload.name.clone() }
}

/// Returns one object for each workload that passes `keep`.
pub fn each_workload(layout: &Layout, keep: impl Fn(&Workload) -> bool) -> Vec<Item> {
    layout
        .workloads_of(keep)
        .map(|(index, workload)| Item::new(index, index, workload.created))
        .collect()
}

/// Returns whether a workload is a deployment.
pub fn is_deployment(workload: &Workload) -> bool {
    workload.controller == Controller::Deployment
}

/// Returns whether a workload runs permanently and so has an account, a service and configuration.
pub fn is_service(workload: &Workload) -> bool {
    !matches!(workload.controller, Controller::Job { .. })
}
