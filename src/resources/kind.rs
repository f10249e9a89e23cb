//! What a resource file declares: a kind, its identity labels and its table of families.
//!
//! [`Kind`] is implemented by a unit struct for each resource; [`Resource`] is the same without the
//! type, for the registry, and [`Renderer`] turns objects into the cache's lines with the families,
//! label selections and filters that the process was started with.

use std::sync::Arc;

use crate::cache::{self, MetricKind, Rendered, Schema};

pub use super::metadata::Object;
use super::options::RenderOptions;
use super::select::selection::Selection;
use super::series::Series;
use crate::wire::view::{DecodeError, ObjectBytes, decode};

/// Where a resource lives in the API, and how it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// Plural lower-case name, as in `--resources` and in API paths.
    pub name: &'static str,
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether it is watched when `--resources` is not given.
    pub default_enabled: bool,
}

/// How settled a family's name and labels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Kept for good; HELP begins with `[STABLE] `.
    Stable,
    /// May change.
    Alpha,
}

/// A text of an object that the API server also prints in tables of such objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading of the table's column.
    pub heading: &'static str,
    /// The member of the object that it shows verbatim.
    pub member: &'static str,
}

/// What of an object its series are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Its metadata.
    Metadata,
    /// Its metadata, and this.
    Column(Column),
    /// More than that.
    Object,
}

impl Needs {
    /// What is needed for both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Metadata, needs) | (needs, Self::Metadata) => needs,
            (one, other) if one == other => one,
            _ => Self::Object,
        }
    }
}

/// What can be known of a family without an object.
#[derive(Clone, Copy, Debug)]
pub struct FamilyInfo {
    /// The metric's name.
    pub name: &'static str,
    /// What it says, without marks.
    pub help: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// Its stability.
    pub stability: Stability,
    /// Whether it is off unless named by `--metric-opt-in-list`.
    pub opt_in: bool,
    /// The version since which it is deprecated.
    pub deprecated: Option<&'static str>,
    /// Labels after the identity labels, in order; `label_*` stands for names that objects decide.
    pub labels: &'static [&'static str],
    /// The labels of those series that have others than `labels`.
    pub other_labels: Option<&'static [&'static str]>,
    /// What its series are made of, those of the identity labels aside.
    pub needs: Needs,
}

impl FamilyInfo {
    /// The HELP text with the marks for stability and deprecation.
    #[must_use]
    pub fn full_help(&self) -> String {
        let stable = if self.stability == Stability::Stable { "[STABLE] " } else { "" };
        let deprecated =
            self.deprecated.map(|since| format!("(Deprecated since {since}) ")).unwrap_or_default();
        format!("{stable}{deprecated}{}", self.help)
    }
}

/// One row of a resource's table.
pub struct Family<K: Kind + ?Sized> {
    /// Everything but the code.
    pub info: FamilyInfo,
    /// Writes the family's series for one object.
    pub emit: Emit<K>,
}

/// A function that writes the series of one family for one object.
pub type Emit<K> = for<'v, 'a, 's> fn(&'v <K as Kind>::View<'a>, &mut Series<'s>);

/// An identity label: its name, and its value of an object.
pub type Identity<K> = (&'static str, for<'v, 'a> fn(&'v <K as Kind>::View<'a>) -> &'v str);

impl<K: Kind + ?Sized> Family<K> {
    const fn new(
        name: &'static str,
        stability: Stability,
        labels: &'static [&'static str],
        help: &'static str,
        emit: Emit<K>,
    ) -> Self {
        let kind = MetricKind::Gauge;
        let info = FamilyInfo {
            name,
            help,
            kind,
            stability,
            opt_in: false,
            deprecated: None,
            labels,
            other_labels: None,
            needs: Needs::Object,
        };
        Self { info, emit }
    }
}

/// The same family as a counter.
#[must_use]
pub const fn counter<K: Kind + ?Sized>(mut family: Family<K>) -> Family<K> {
    family.info.kind = MetricKind::Counter;
    family
}

/// The same family, off unless `--metric-opt-in-list` names it.
#[must_use]
pub const fn opt_in<K: Kind + ?Sized>(mut family: Family<K>) -> Family<K> {
    family.info.opt_in = true;
    family
}

/// The same family, deprecated since `version`.
#[must_use]
pub const fn deprecated<K: Kind + ?Sized>(
    version: &'static str,
    mut family: Family<K>,
) -> Family<K> {
    family.info.deprecated = Some(version);
    family
}

/// The same family, which is made of an object's metadata alone.
#[must_use]
pub const fn of_metadata<K: Kind + ?Sized>(mut family: Family<K>) -> Family<K> {
    family.info.needs = Needs::Metadata;
    family
}

/// The same family, which is made of an object's metadata and what a column of its table shows.
#[must_use]
pub const fn of_column<K: Kind + ?Sized>(column: Column, mut family: Family<K>) -> Family<K> {
    family.info.needs = Needs::Column(column);
    family
}

/// The same family, of which some series have these labels in place of its own.
#[must_use]
pub const fn or_labels<K: Kind + ?Sized>(
    labels: &'static [&'static str],
    mut family: Family<K>,
) -> Family<K> {
    family.info.other_labels = Some(labels);
    family
}

/// A stable gauge: name, labels after the identity labels, HELP, series.
#[must_use]
pub const fn stable<K: Kind + ?Sized>(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    emit: Emit<K>,
) -> Family<K> {
    Family::new(name, Stability::Stable, labels, help, emit)
}

/// An alpha gauge: name, labels after the identity labels, HELP, series.
#[must_use]
pub const fn alpha<K: Kind + ?Sized>(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    emit: Emit<K>,
) -> Family<K> {
    Family::new(name, Stability::Alpha, labels, help, emit)
}

/// A resource: its place in the API, its lean view and its table of families.
pub trait Kind: 'static {
    /// Where it lives.
    const API: Api;
    /// The labels that every series of an object begins with.
    const IDENTITY: &'static [Identity<Self>];
    /// What the values of the identity labels are made of.
    const IDENTITY_NEEDS: Needs = Needs::Metadata;
    /// The families, in exposition order.
    const FAMILIES: &'static [Family<Self>];
    /// The lean view.
    type View<'a>: Object<'a>;
}

/// What, beside its families, decides what a renderer writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Which object labels appear.
    pub labels: Selection,
    /// Which annotations appear.
    pub annotations: Selection,
    /// Whether a series is printed as often as an object gives rise to it.
    pub keep_duplicates: bool,
    /// What a renderer that is not made of a table of families was made from, in any form; otherwise empty.
    pub custom: String,
}

/// A resource, whatever its view.
pub trait Resource: Send + Sync {
    /// Where it lives.
    fn api(&self) -> &'static Api;

    /// Names of the identity labels.
    fn identity_labels(&self) -> Vec<&'static str>;

    /// What its families are, in exposition order.
    fn families(&self) -> Vec<FamilyInfo>;

    /// A renderer for these options.
    fn renderer(&self, options: &RenderOptions) -> Arc<dyn Renderer>;
}

impl dyn Resource {
    /// Plural lower-case name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.api().name
    }

    /// The type's name in kube-state-metrics' own metrics, such as `*v1.Pod`.
    #[must_use]
    pub fn go_type(&self) -> String {
        format!("*{}.{}", self.api().version, self.api().kind)
    }
}

/// A family with labels whose values people choose, so that there are budgets for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its number in the schema.
    pub family: usize,
    /// Which labels those are.
    pub labels: OpenLabels,
}

/// Labels whose values people choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenLabels {
    /// Those of the one line of an object whose names begin so. The others tell objects apart.
    Prefixed(&'static str),
    /// All of them. Those that say an object's namespace, name and uid, as far as there are such labels, have these names.
    All([Option<String>; 3]),
}

/// Turns objects of one resource into lines.
pub trait Renderer: Send + Sync {
    /// The families it writes.
    fn schema(&self) -> Arc<Schema>;

    /// Two renderers of one resource with the same families and the same settings write the same.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// What of an object it reads.
    fn needs(&self) -> Needs {
        Needs::Object
    }

    /// The families with labels that there are budgets for.
    fn open(&self) -> Vec<Open> {
        Vec::new()
    }

    /// Whoever is to be told of the objects beside their lines, if anybody is.
    fn follower(&self) -> Option<&dyn Follower> {
        None
    }

    /// Renders one object into `out`, which is cleared first.
    ///
    /// # Errors
    /// The object is malformed; `out` then holds nothing to use.
    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError>;
}

/// Is told what becomes of the objects of a resource. `fresh` objects belong to a state that is being collected.
pub trait Follower: Send + Sync {
    /// A new state is being collected, or goes on being collected.
    fn collect(&self);

    /// What was collected is the state, or is to be forgotten.
    fn settle(&self, is_state: bool);

    /// An object is there, new or changed; it could be rendered.
    fn put(&self, uid: &[u8], object: ObjectBytes<'_>, fresh: bool);

    /// An object is gone.
    fn delete(&self, uid: &[u8], fresh: bool);
}

/// The registry's handle of a [`Kind`].
pub struct Handle<K>(std::marker::PhantomData<fn() -> K>);

impl<K> Handle<K> {
    /// A handle.
    #[must_use]
    pub const fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<K> Default for Handle<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Kind> Resource for Handle<K> {
    fn api(&self) -> &'static Api {
        &K::API
    }

    fn identity_labels(&self) -> Vec<&'static str> {
        K::IDENTITY.iter().map(|(name, _)| *name).collect()
    }

    fn families(&self) -> Vec<FamilyInfo> {
        K::FAMILIES.iter().map(|family| family.info).collect()
    }

    fn renderer(&self, options: &RenderOptions) -> Arc<dyn Renderer> {
        let on: Vec<&'static Family<K>> = K::FAMILIES
            .iter()
            .filter(|family| options.families.enabled(family.info.name, family.info.opt_in))
            .collect();
        let families = on.iter().map(|family| cache::Family {
            name: family.info.name.to_owned(),
            help: family.info.full_help(),
            kind: family.info.kind,
        });
        let schema =
            Arc::new(Schema { resource: K::API.name.to_owned(), families: families.collect() });
        let emits = on.iter().map(|family| family.emit).collect();
        let needs = on.iter().map(|family| family.info.needs).fold(K::IDENTITY_NEEDS, Needs::and);
        let open = on.iter().enumerate().filter_map(|(family, row)| {
            let (selection, prefix) = match row.info.labels {
                ["label_*"] => (&options.labels, "label_"),
                ["annotation_*"] => (&options.annotations, "annotation_"),
                _ => return None,
            };
            let labels = OpenLabels::Prefixed(prefix);
            (!selection.is_empty()).then_some(Open { family, labels })
        });
        let open = open.collect();
        Arc::new(KindRenderer::<K> { schema, emits, needs, open, options: options.clone() })
    }
}

struct KindRenderer<K: Kind> {
    schema: Arc<Schema>,
    emits: Vec<Emit<K>>,
    needs: Needs,
    open: Vec<Open>,
    options: RenderOptions,
}

impl<K: Kind> Renderer for KindRenderer<K> {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    fn settings(&self) -> Settings {
        let RenderOptions { labels, annotations, keep_duplicates, .. } = &self.options;
        Settings {
            labels: labels.clone(),
            annotations: annotations.clone(),
            keep_duplicates: *keep_duplicates,
            custom: String::new(),
        }
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn open(&self) -> Vec<Open> {
        self.open.clone()
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let view: K::View<'_> = decode(object)?;
        let metadata = view.metadata();
        out.uid.extend_from_slice(metadata.uid.as_bytes());
        out.resource_version.push_str(&metadata.resource_version);
        out.namespace.extend_from_slice(metadata.namespace.as_bytes());
        let mut series = Series::new(out, &self.options);
        for (name, value) in K::IDENTITY {
            series.identity(name, value(&view));
        }
        for emit in &self.emits {
            emit(&view, &mut series);
            series.end_family();
        }
        Ok(())
    }
}
