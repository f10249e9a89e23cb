//! `horizontalpodautoscalers` (autoscaling/v2 HorizontalPodAutoscaler).

use crate::resources::prelude::*;

object! {
    /// The fields of a HorizontalPodAutoscaler that metrics read.
    pub struct Autoscaler<'a> {
        spec: AutoscalerSpec<'a> = 2 "spec" struct AutoscalerSpec {
            target: ScaleTarget<'a> = 1 "scaleTargetRef" struct ScaleTarget {
                kind: Str<'a> = 1 "kind",
                name: Str<'a> = 2 "name",
                api_version: Str<'a> = 3 "apiVersion",
            },
            min_replicas: Option<i32> = 2 "minReplicas",
            max_replicas: i32 = 3 "maxReplicas",
            metrics: Vec<MetricSpec<'a>> = 4 "metrics" struct MetricSpec {
                kind: Str<'a> = 1 "type",
                object: ObjectSource<'a> = 2 "object" struct ObjectSource {
                    target: MetricTarget<'a> = 2 "target",
                    metric: MetricName<'a> = 3 "metric",
                },
                pods: NamedSource<'a> = 3 "pods",
                resource: ResourceSource<'a> = 4 "resource",
                external: NamedSource<'a> = 5 "external",
                container_resource: ResourceSource<'a> = 7 "containerResource",
            },
            behavior: Behavior<'a> = 5 "behavior" struct Behavior {
                scale_up: ScalingRules<'a> = 1 "scaleUp",
                scale_down: ScalingRules<'a> = 2 "scaleDown",
            },
        },
        status: AutoscalerStatus<'a> = 3 "status" struct AutoscalerStatus {
            current_replicas: i32 = 3 "currentReplicas",
            desired_replicas: i32 = 4 "desiredReplicas",
            current_metrics: Vec<MetricStatus<'a>> = 5 "currentMetrics" struct MetricStatus {
                kind: Str<'a> = 1 "type",
                object: NamedStatus<'a> = 2 "object",
                pods: NamedStatus<'a> = 3 "pods",
                resource: ResourceStatus<'a> = 4 "resource",
                external: NamedStatus<'a> = 5 "external",
                container_resource: ResourceStatus<'a> = 7 "containerResource",
            },
            conditions: Vec<Condition<'a>> = 6 "conditions",
        },
    }

    /// `spec.behavior.scaleUp` and `spec.behavior.scaleDown`.
    pub struct ScalingRules<'a> {
        tolerance: Option<QuantityText<'a>> = 4 "tolerance",
    }

    /// `spec.metrics[].pods` and `spec.metrics[].external`.
    pub struct NamedSource<'a> {
        metric: MetricName<'a> = 1 "metric",
        target: MetricTarget<'a> = 2 "target",
    }

    /// `spec.metrics[].resource` and `spec.metrics[].containerResource`.
    pub struct ResourceSource<'a> {
        name: Str<'a> = 1 "name",
        target: MetricTarget<'a> = 2 "target",
        container: Str<'a> = 3 "container",
    }

    /// `target` of a metric.
    pub struct MetricTarget<'a> {
        value: Option<QuantityText<'a>> = 2 "value",
        average_value: Option<QuantityText<'a>> = 3 "averageValue",
        average_utilization: Option<i32> = 4 "averageUtilization",
    }

    /// `metric` of a source or status.
    pub struct MetricName<'a> {
        name: Str<'a> = 1 "name",
    }

    /// `status.currentMetrics[].object`, `pods` and `external`.
    pub struct NamedStatus<'a> {
        metric: MetricName<'a> = 1 "metric",
        current: MetricValue<'a> = 2 "current",
    }

    /// `status.currentMetrics[].resource` and `containerResource`.
    pub struct ResourceStatus<'a> {
        name: Str<'a> = 1 "name",
        current: MetricValue<'a> = 2 "current",
        container: Str<'a> = 3 "container",
    }

    /// `current` of a metric.
    pub struct MetricValue<'a> {
        value: Option<QuantityText<'a>> = 1 "value",
        average_value: Option<QuantityText<'a>> = 2 "averageValue",
        average_utilization: Option<i32> = 3 "averageUtilization",
    }
}

kind! {
    /// The HorizontalPodAutoscaler kind.
    HorizontalPodAutoscalers: Autoscaler, "autoscaler",
        Api::namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    identity namespace_and::<Self>("horizontalpodautoscaler");
    families autoscaler, s:
        alpha "kube_horizontalpodautoscaler_info"
            ["scaletargetref_api_version", "scaletargetref_kind", "scaletargetref_name"],
            "What the autoscaler scales.": info(autoscaler, s);
        generation(Stable, "kube_horizontalpodautoscaler_metadata_generation");
        stable "kube_horizontalpodautoscaler_spec_max_replicas",
            "The most pods that the autoscaler may ask for.": s.value(autoscaler.spec.max_replicas);
        stable "kube_horizontalpodautoscaler_spec_min_replicas",
            "The fewest pods that the autoscaler may ask for.": {
                // The API server's default.
                s.value(autoscaler.spec.min_replicas.unwrap_or(1));
            };
        alpha "kube_horizontalpodautoscaler_spec_target_metric"
            ["metric_name", "metric_target_type", "container"],
            "The figures that the autoscaler steers for.": target_metrics(autoscaler, s);
        alpha "kube_horizontalpodautoscaler_spec_behavior_scale_down_tolerance",
            "How far below its target a figure may lie before the autoscaler removes pods, as a share of the target.":
            tolerance(&autoscaler.spec.behavior.scale_down, s);
        alpha "kube_horizontalpodautoscaler_spec_behavior_scale_up_tolerance",
            "How far above its target a figure may lie before the autoscaler adds pods, as a share of the target.":
            tolerance(&autoscaler.spec.behavior.scale_up, s);
        stable "kube_horizontalpodautoscaler_status_target_metric"
            ["metric_name", "metric_target_type", "container"],
            "The figures that the autoscaler last saw.": current_metrics(autoscaler, s);
        stable "kube_horizontalpodautoscaler_status_current_replicas",
            "How many pods the autoscaler last saw.": s.value(autoscaler.status.current_replicas);
        stable "kube_horizontalpodautoscaler_status_desired_replicas",
            "How many pods the autoscaler last asked for.":
            s.value(autoscaler.status.desired_replicas);
        annotations(Alpha, "kube_horizontalpodautoscaler_annotations");
        labels(Stable, "kube_horizontalpodautoscaler_labels");
        stable "kube_horizontalpodautoscaler_status_condition" ["condition", "status"],
            "The conditions of the autoscaler: for each, one series for each status, 1 for the present one.":
            condition::all(&autoscaler.status.conditions, s);
        created(Alpha, "kube_horizontalpodautoscaler_created");
        deleted(Alpha, "kube_horizontalpodautoscaler_deletion_timestamp");
}

fn info(autoscaler: &Autoscaler<'_>, s: &mut Series<'_>) {
    let target = &autoscaler.spec.target;
    let labels = [
        ("scaletargetref_api_version", &*target.api_version),
        ("scaletargetref_kind", &*target.kind),
        ("scaletargetref_name", &*target.name),
    ];
    s.with(if target.api_version.is_empty() { &labels[1..] } else { &labels }, 1.0);
}

fn tolerance(rules: &ScalingRules<'_>, s: &mut Series<'_>) {
    let quantity = rules.tolerance.as_ref().and_then(QuantityText::quantity);
    s.value(quantity.map(|quantity| quantity.approximate()));
}

/// Defines the function that writes the figures of a list of metrics.
macro_rules! figures {
    ($write:ident: $part:ident.$metrics:ident, $value:ident) => {
        fn $write(autoscaler: &Autoscaler<'_>, s: &mut Series<'_>) {
            for metric in &autoscaler.$part.$metrics {
                let (name, container, figures) = match &*metric.kind {
                    "Object" => (&metric.object.metric.name, "", &metric.object.$value),
                    "Pods" => (&metric.pods.metric.name, "", &metric.pods.$value),
                    "External" => (&metric.external.metric.name, "", &metric.external.$value),
                    "Resource" => (&metric.resource.name, "", &metric.resource.$value),
                    "ContainerResource" => {
                        let of = &metric.container_resource;
                        (&of.name, &*of.container, &of.$value)
                    }
                    _ => continue,
                };
                let mut series = |kind, value| {
                    let labels = [
                        ("metric_name", &**name),
                        ("metric_target_type", kind),
                        ("container", container),
                    ];
                    s.with(&labels, value);
                };
                for (kind, text) in [("value", &figures.value), ("average", &figures.average_value)]
                {
                    if let Some(quantity) = text.as_ref().and_then(QuantityText::quantity) {
                        series(kind, quantity.converted());
                    }
                }
                if let Some(percent) = figures.average_utilization {
                    series("utilization", percent.into());
                }
            }
        }
    };
}

figures!(target_metrics: spec.metrics, target);
figures!(current_metrics: status.current_metrics, current);
