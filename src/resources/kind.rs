//! The declaration of a resource: its kind, identity labels and table of families.
//!
//! [`Kind`] is implemented by a unit struct for each resource; [`Resource`] is its type-erased form for the registry;
//! [`Renderer`] turns objects into the cache's lines, with the families, label selections and filters that the process
//! was started with.

use std::sync::Arc;

use crate::cache::{self, MetricKind, Rendered, Schema};

pub use super::metadata::Object;
use super::options::RenderOptions;
use super::series::Series;
use crate::wire::view::{DecodeError, ObjectBytes, decode};

/// The API location of a resource and its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// Plural lower-case name, as in `--resources` and in API paths.
    pub name: &'static str,
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind, such as `Pod`.
    pub kind: &'static str,
    /// True if objects are namespaced.
    pub namespaced: bool,
    /// True if it is watched when `--resources` is not given.
    pub default_enabled: bool,
}

impl Api {
    /// Describes a namespaced kind, watched by default.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        name: &'static str,
    ) -> Self {
        Self { name, group, version, kind, namespaced: true, default_enabled: true }
    }

    /// Describes a kind without namespaces, watched by default.
    pub const fn cluster_wide(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        name: &'static str,
    ) -> Self {
        Self { name, group, version, kind, namespaced: false, default_enabled: true }
    }

    /// Describes a kind that is watched only if `--resources` names it.
    #[must_use]
    pub const fn off_by_default(self) -> Self {
        Self { default_enabled: false, ..self }
    }
}

/// The stability level of a family's name and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Guaranteed not to change; HELP begins with `[STABLE] `.
    Stable,
    /// May change.
    Alpha,
}

/// A field of an object that the API server also prints in tables of such objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading of the table column.
    pub heading: &'static str,
    /// The field that the column shows verbatim.
    pub member: &'static str,
}

/// The parts of an object that its series are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// Its metadata.
    Metadata,
    /// Its metadata and this table column.
    Column(Column),
    /// The whole object.
    Object,
}

impl Representation {
    /// Returns the parts needed for both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Metadata, representation) | (representation, Self::Metadata) => representation,
            (one, other) if one == other => one,
            _ => Self::Object,
        }
    }
}

/// The static description of a family.
#[derive(Clone, Copy, Debug)]
pub struct FamilyInfo {
    /// The metric name.
    pub name: &'static str,
    /// The HELP text, with `{}` in place of `noun`.
    help: &'static str,
    /// The kind in running text.
    noun: &'static str,
    /// The metric type.
    pub kind: MetricKind,
    /// The stability level.
    pub stability: Stability,
    /// True if the family is off unless named by `--metric-opt-in-list`.
    pub opt_in: bool,
    /// The version that deprecated it.
    pub deprecated: Option<&'static str>,
    /// Labels after the identity labels, in order; `label_*` represents names that come from objects.
    pub labels: &'static [&'static str],
    /// The parts of an object that its series are computed from, identity labels excluded.
    pub representation: Representation,
}

impl FamilyInfo {
    /// Returns the HELP text, without the marks for stability and deprecation.
    pub fn help(&self) -> String {
        self.help.replace("{}", self.noun)
    }

    /// Returns the HELP text with the marks for stability and deprecation.
    pub fn full_help(&self) -> String {
        let stable = if self.stability == Stability::Stable { "[STABLE] " } else { "" };
        let deprecated =
            self.deprecated.map(|since| format!("(Deprecated since {since}) ")).unwrap_or_default();
        format!("{stable}{deprecated}{}", self.help())
    }
}

/// One row of a resource's table of families.
pub struct Family<K: Kind + ?Sized> {
    /// The static description.
    pub info: FamilyInfo,
    /// Writes the family's series for one object.
    pub emit: Emit<K>,
}

/// A function that writes the series of one family for one object.
pub type Emit<K> = for<'v, 'a, 's> fn(&'v <K as Kind>::View<'a>, &mut Series<'s>);

/// An identity label: its name, and a function that returns its value.
pub type Identity<K> = (&'static str, for<'v, 'a> fn(&'v <K as Kind>::View<'a>) -> &'v str);

impl<K: Kind + ?Sized> Family<K> {
    /// Defines a gauge: name, stability, labels after the identity labels, HELP with `{}` in place of the kind's noun,
    /// function.
    pub const fn new(
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
            noun: K::NOUN,
            kind,
            stability,
            opt_in: false,
            deprecated: None,
            labels,
            representation: Representation::Object,
        };
        Self { info, emit }
    }
}

/// Turns a family into a counter.
#[must_use]
pub const fn counter<K: Kind + ?Sized>(mut family: Family<K>) -> Family<K> {
    family.info.kind = MetricKind::Counter;
    family
}

/// Turns a family off unless `--metric-opt-in-list` names it.
#[must_use]
pub const fn opt_in<K: Kind + ?Sized>(mut family: Family<K>) -> Family<K> {
    family.info.opt_in = true;
    family
}

/// Marks a family as deprecated since `version`.
#[must_use]
pub const fn deprecated<K: Kind + ?Sized>(
    version: &'static str,
    mut family: Family<K>,
) -> Family<K> {
    family.info.deprecated = Some(version);
    family
}

/// Declares that a family needs only the object's metadata.
#[must_use]
pub const fn of_metadata<K: Kind + ?Sized>(mut family: Family<K>) -> Family<K> {
    family.info.representation = Representation::Metadata;
    family
}

/// Declares that a family needs only the object's metadata and a table column.
#[must_use]
pub const fn of_column<K: Kind + ?Sized>(column: Column, mut family: Family<K>) -> Family<K> {
    family.info.representation = Representation::Column(column);
    family
}

/// Declares the table of families of a kind, for the names of its object and of the series to write.
///
/// A row of a gauge is `STABILITY NAME [LABELS], HELP: CODE;`, without `[LABELS]` if it has none of its own. A modifier such
/// as `counter` or `deprecated(VERSION)` may precede the name. A row of a gauge with one series of value 1 is
/// `STABILITY NAME {LABEL: VALUE, …}, HELP;`, and with `for ITEM in LIST, …` after the labels there is one such series for
/// each item. Other rows are expressions that yield a [`Family`].
macro_rules! families {
    (@stability stable) => { $crate::resources::kind::Stability::Stable };
    (@stability alpha) => { $crate::resources::kind::Stability::Alpha };
    (@labels) => { &[] };
    (@labels $labels:expr) => { &$labels };
    (@row $object:ident $s:ident $stability:ident $name:literal [$($labels:expr)?] $help:literal $code:expr) => {
        $crate::resources::kind::Family::new(
            $name,
            $crate::resources::kind::families!(@stability $stability),
            $crate::resources::kind::families!(@labels $($labels)?),
            $help,
            |$object, $s| $code,
        )
    };
    (@each $s:ident {$($label:literal: $value:expr),+}) => { $s.with(&[$(($label, $value)),+], 1.0) };
    (@each $s:ident $labels:tt for $item:pat in $list:expr $(, for $inner:pat in $items:expr)*) => {
        for $item in $list {
            $crate::resources::kind::families!(@each $s $labels $(for $inner in $items),*);
        }
    };
    (@$object:ident $s:ident [$($family:expr,)*]) => { &[$($family),*] };
    (@$object:ident $s:ident [$($family:expr,)*]
        $stability:ident $($modifier:ident $(($($argument:expr),+))?)?
        $name:literal {$($label:literal: $value:expr),+ $(,)?}
        $(for $item:pat in $list:expr),*, $help:literal;
        $($rest:tt)*
    ) => {
        $crate::resources::kind::families!(@$object $s [$($family,)*
            $($modifier)?($($($($argument,)+)?)? $crate::resources::kind::families!(
                @row $object $s $stability $name [[$($label),+]] $help $crate::resources::kind::families!(
                    @each $s {$($label: $value),+} $(for $item in $list),*))),] $($rest)*)
    };
    (@$object:ident $s:ident [$($family:expr,)*]
        $stability:ident $($modifier:ident $(($($argument:expr),+))?)?
        $name:literal $($labels:expr)?, $help:literal: $code:expr;
        $($rest:tt)*
    ) => {
        $crate::resources::kind::families!(@$object $s [$($family,)*
            $($modifier)?($($($($argument,)+)?)? $crate::resources::kind::families!(
                @row $object $s $stability $name [$($labels)?] $help $code)),] $($rest)*)
    };
    (@$object:ident $s:ident [$($family:expr,)*] $other:expr; $($rest:tt)*) => {
        $crate::resources::kind::families!(@$object $s [$($family,)* $other,] $($rest)*)
    };
    ($object:ident, $s:ident: $($rows:tt)+) => {
        $crate::resources::kind::families!(@$object $s [] $($rows)+)
    };
}

pub(crate) use families;

/// Declares a [`Kind`]: its name and view, the noun in running text, the API location, the identity labels and the
/// [table of families](families).
///
/// `of Object` means that the identity labels need more than the metadata.
macro_rules! kind {
    (
        $(#[$doc:meta])*
        $kind:ident: $view:ident, $noun:literal, $api:expr;
        identity $identity:expr $(, of $representation:ident)?;
        families $object:ident, $s:ident: $($rows:tt)+
    ) => {
        $(#[$doc])*
        pub struct $kind;

        impl $crate::resources::kind::Kind for $kind {
            const API: $crate::resources::kind::Api = $api;
            const NOUN: &'static str = $noun;
            const IDENTITY: &'static [$crate::resources::kind::Identity<Self>] = &$identity;
            $(const IDENTITY_REPRESENTATION: $crate::resources::kind::Representation =
                $crate::resources::kind::Representation::$representation;)?
            type View<'a> = $view<'a>;
            const FAMILIES: &'static [$crate::resources::kind::Family<Self>] =
                $crate::resources::kind::families! { $object, $s: $($rows)+ };
        }
    };
}

pub(crate) use kind;

/// Defines the identity labels of most namespaced kinds: `namespace`, and `label` with the name.
pub const fn namespace_and<K: Kind + ?Sized>(label: &'static str) -> [Identity<K>; 2] {
    [("namespace", namespace::<K>), (label, name::<K>)]
}

/// Defines the identity labels of kinds that also have `uid`.
pub const fn namespace_and_uid<K: Kind + ?Sized>(label: &'static str) -> [Identity<K>; 3] {
    [("namespace", namespace::<K>), (label, name::<K>), ("uid", uid::<K>)]
}

fn namespace<'v, K: Kind + ?Sized>(object: &'v K::View<'_>) -> &'v str {
    &object.metadata().namespace
}

fn name<'v, K: Kind + ?Sized>(object: &'v K::View<'_>) -> &'v str {
    &object.metadata().name
}

fn uid<'v, K: Kind + ?Sized>(object: &'v K::View<'_>) -> &'v str {
    &object.metadata().uid
}

/// A resource: its API location, its lean view and its table of families.
pub trait Kind: Send + Sync + 'static {
    /// The API location.
    const API: Api;
    /// The kind in running text, such as `pod`, for HELP texts.
    const NOUN: &'static str;
    /// The labels that begin every series of an object.
    const IDENTITY: &'static [Identity<Self>];
    /// The parts of an object that the identity labels are computed from.
    const IDENTITY_REPRESENTATION: Representation = Representation::Metadata;
    /// The families, in exposition order.
    const FAMILIES: &'static [Family<Self>];
    /// The lean view of an object.
    type View<'a>: Object<'a>;
}

/// A resource, independent of the type of its view.
pub trait Resource: Send + Sync {
    /// Returns the API location.
    fn api(&self) -> &'static Api;

    /// Returns the names of the identity labels.
    fn identity_labels(&self) -> Vec<&'static str>;

    /// Returns the families, in exposition order.
    fn families(&self) -> Vec<FamilyInfo>;

    /// Creates a renderer with these options.
    fn renderer(&self, options: &RenderOptions) -> Arc<dyn Renderer>;
}

impl dyn Resource {
    /// Returns the plural lower-case name.
    pub fn name(&self) -> &'static str {
        self.api().name
    }
}

/// A family with user-defined label values, which are subject to cardinality budgets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLabelFamily {
    /// The index of the family in the schema.
    pub family: usize,
    /// The labels with user-defined values.
    pub labels: UserLabels,
}

/// A set of labels with user-defined values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserLabels {
    /// The labels with this name prefix. The family has one line per object, and its other labels identify the object.
    Prefixed(&'static str),
    /// All labels. The names of those with the object's namespace, name and uid, where there are such labels.
    All([Option<String>; 3]),
}

/// A renderer of the objects of one resource.
pub trait Renderer: Send + Sync {
    /// Returns the families it writes.
    fn schema(&self) -> Arc<Schema>;

    /// Returns its settings, in any form. Renderers of one resource with equal families and settings have the same output.
    fn settings(&self) -> String {
        String::new()
    }

    /// Returns the parts of an object that it reads.
    fn representation(&self) -> Representation {
        Representation::Object
    }

    /// Returns the families that are subject to cardinality budgets.
    fn user_labels(&self) -> Vec<UserLabelFamily> {
        Vec::new()
    }

    /// Renders one object into `out`, which is cleared first.
    ///
    /// # Errors
    /// The object is malformed; the content of `out` is then unspecified.
    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError>;
}

impl<K: Kind> Resource for K {
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
        let is_on =
            |family: &&Family<K>| options.families.enabled(family.info.name, family.info.opt_in);
        let on = K::FAMILIES.iter().filter(is_on).map(|family| (family.info, family.emit));
        let (families, emits): (Vec<FamilyInfo>, Vec<Emit<K>>) = on.unzip();
        let described = Described::new(&K::API, K::IDENTITY_REPRESENTATION, &families, options);
        Arc::new(KindRenderer::<K> { described, emits, options: options.clone() })
    }
}

/// The description of a renderer. It depends on the kind through data alone, so the code that makes it exists once.
struct Described {
    schema: Arc<Schema>,
    representation: Representation,
    user_labels: Vec<UserLabelFamily>,
}

impl Described {
    fn new(
        api: &Api,
        identity: Representation,
        on: &[FamilyInfo],
        options: &RenderOptions,
    ) -> Self {
        let families = on.iter().map(|family| cache::Family {
            name: family.name.to_owned(),
            help: family.full_help(),
            kind: family.kind,
        });
        let schema = Schema { resource: api.name.to_owned(), families: families.collect() };
        let representations = on.iter().map(|family| family.representation);
        let user_labels = on.iter().enumerate().filter_map(|(family, info)| {
            let (selection, prefix) = match info.labels {
                ["label_*"] => (&options.labels, "label_"),
                ["annotation_*"] => (&options.annotations, "annotation_"),
                _ => return None,
            };
            let labels = UserLabels::Prefixed(prefix);
            (!selection.is_empty()).then_some(UserLabelFamily { family, labels })
        });
        Self {
            schema: Arc::new(schema),
            representation: representations.fold(identity, Representation::and),
            user_labels: user_labels.collect(),
        }
    }
}

struct KindRenderer<K: Kind> {
    described: Described,
    emits: Vec<Emit<K>>,
    options: RenderOptions,
}

impl<K: Kind> Renderer for KindRenderer<K> {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.described.schema)
    }

    fn settings(&self) -> String {
        let RenderOptions { labels, annotations, keep_duplicates, skip_zero_states, .. } =
            &self.options;
        format!("{:?}", (labels, annotations, keep_duplicates, skip_zero_states))
    }

    fn representation(&self) -> Representation {
        self.described.representation
    }

    fn user_labels(&self) -> Vec<UserLabelFamily> {
        self.described.user_labels.clone()
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
