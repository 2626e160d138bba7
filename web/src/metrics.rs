//! The state of some GPUs as OpenMetrics, for Prometheus and other readers.
//!
//! Every figure is one of `baton status --json`. A tenant that has left is no longer named: its totals are added to
//! `tenant="departed"`, so the number of series is bounded by the number of present tenants.

use std::fmt;
use std::sync::Arc;

use baton_report::pod::Pod;
use baton_report::tenant::{State, Tenant};
use baton_report::times::Buckets;
use baton_views::standing::STATES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::known::Known;

/// The type of [`of`]'s text.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The type of [`classic`]'s.
pub(crate) const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The tenant label of all tenants that have left.
const DEPARTED: &str = "departed";

/// Every metric: its name, kind, labels and help.
///
/// The tables of `docs/monitoring` are made of this list.
pub const METRICS: [Metric; 18] = [
    Metric::info("build", "version, driver", "The coordinator's version and driver"),
    Metric::gauge("start_time", Some("seconds"), "gpu", "When the coordinator began, in seconds since 1970"),
    Metric::gauge("gpu_memory", Some("bytes"), "gpu, line", "All of the GPU's memory, by line of the ledger"),
    Metric::gauge("host_pool", Some("bytes"), "gpu, state", "Host memory for what is evicted: used, free, unprepared"),
    Metric::gauge("tenants", None, "gpu, state", "Programs that share the GPU, by how they stand"),
    Metric::gauge("newcomers", None, "gpu", "Programs that wait until fewer share the GPU"),
    Metric::counter("tenants_departed", None, "gpu", "Programs that have left"),
    Metric::gauge(
        "tenant_memory",
        Some("bytes"),
        TENANTS,
        "A program's GPU memory: resident, evicted, unmanaged, contexts",
    ),
    Metric::counter(
        "tenant_gpu",
        Some("seconds"),
        TENANT,
        "How long a program had the GPU, or was at work beside whoever had it",
    ),
    Metric::histogram("tenant_wait", TENANT, "How long a program waited for a turn, from wanting the GPU to having it"),
    Metric::histogram("request", TENANT, "How long requests of latency programs took"),
    Metric::counter("slo_misses", None, TENANT, "Requests that took longer than their program's target (--slo)"),
    Metric::counter("switches", None, "gpu", "How often the GPU changed hands"),
    Metric::histogram(
        "switch",
        "gpu, phase",
        "How long each phase of a switch took; whole is from the decision to the open gate",
    ),
    Metric::counter("copied", Some("bytes"), "gpu, direction", "Memory copied to the GPU (in) and to the host (out)"),
    Metric::counter("preemptions", None, "gpu", "How often work was taken off the GPU in the middle"),
    Metric::counter("deschedules", None, "gpu", "How often work made way for a moment for a latency program beside it"),
    Metric::counter(
        "allocations_refused",
        None,
        "gpu, reason",
        "Allocations that were refused: arena (too large), host_pool (full), held (by others)",
    ),
];

/// The labels of a metric about one tenant. Labels of containers and pods are set only where they are known.
const TENANT: &str = "gpu, tenant, class, container_id, pod_uid, namespace, pod, container";
const TENANTS: &str = "gpu, tenant, class, container_id, pod_uid, namespace, pod, container, state";

/// One of [`METRICS`].
#[derive(Debug)]
pub struct Metric {
    /// The name without `baton_`, unit and suffix.
    name: &'static str,
    /// The unit at the end of its name.
    unit: Option<&'static str>,
    kind: MetricType,
    /// The names of its labels.
    pub labels: &'static str,
    /// The description of the figure.
    pub help: &'static str,
}

impl Metric {
    const fn info(name: &'static str, labels: &'static str, help: &'static str) -> Self {
        Self { name, unit: None, kind: MetricType::Info, labels, help }
    }

    const fn gauge(name: &'static str, unit: Option<&'static str>, labels: &'static str, help: &'static str) -> Self {
        Self { name, unit, kind: MetricType::Gauge, labels, help }
    }

    const fn counter(name: &'static str, unit: Option<&'static str>, labels: &'static str, help: &'static str) -> Self {
        Self { name, unit, kind: MetricType::Counter, labels, help }
    }

    const fn histogram(name: &'static str, labels: &'static str, help: &'static str) -> Self {
        Self { name, unit: Some("seconds"), kind: MetricType::Histogram, labels, help }
    }

    /// Returns the name in queries; for a histogram, without `_bucket`, `_sum` and `_count`.
    pub fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let suffix = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        format!("baton_{}{unit}{suffix}", self.name)
    }

    /// True if each GPU has its own series.
    fn is_of_gpu(&self) -> bool {
        self.labels.starts_with("gpu")
    }

    /// Returns the kind: `gauge`, `counter`, `histogram` or `info`.
    pub fn kind(&self) -> &str {
        self.kind.as_str()
    }
}

/// Labels of one series. Values may be any text: they are escaped.
struct Labels<'a>(Vec<(&'static str, &'a str)>);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        use std::fmt::Write as _;

        for (key, value) in &self.0 {
            let mut label = encoder.encode_label();
            let mut name = label.encode_label_key()?;
            name.write_str(key)?;
            let mut text = name.encode_label_value()?;
            // The crate does not escape values.
            for c in value.chars() {
                match c {
                    '\\' => text.write_str("\\\\")?,
                    '"' => text.write_str("\\\"")?,
                    '\n' => text.write_str("\\n")?,
                    c => text.write_char(c)?,
                }
            }
            text.finish()?;
        }
        Ok(())
    }
}

/// The value of one series.
enum Value<'a> {
    Number(u64),
    Amount(f64),
    Times(&'a Buckets),
    /// The labels are the value.
    Info,
}

/// Makes OpenMetrics from the status of each GPU.
pub(crate) fn of(known: Vec<Arc<Known>>) -> String {
    let mut registry = Registry::with_prefix("baton");
    registry.register_collector(Box::new(Shown(known)));
    let mut text = String::new();
    // Writing to a `String` never fails.
    let _ = text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Shown(Vec<Arc<Known>>);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &METRICS {
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let mut encoder = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), metric.kind)?;
            // What says nothing about a GPU is the same for all of them.
            let most = if metric.is_of_gpu() { self.0.len() } else { 1 };
            for known in self.0.iter().take(most) {
                for (labels, value) in series(metric.name, known) {
                    encode(&mut encoder, metric.kind, &Labels(labels), &value, &known.status.bucket_seconds)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricType,
    labels: &Labels<'_>,
    value: &Value<'_>,
    bounds: &[f64],
) -> fmt::Result {
    match (value, kind) {
        (Value::Info, _) => encoder.encode_info(labels),
        (Value::Number(number), MetricType::Counter) => {
            encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(number, None)
        }
        (Value::Amount(amount), MetricType::Counter) => {
            encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(amount, None)
        }
        // Floating point numbers hold whole numbers of this size exactly: up to 8 PiB.
        (Value::Number(number), _) => encoder.encode_family(labels)?.encode_gauge(&(*number as i64)),
        (Value::Amount(amount), _) => encoder.encode_family(labels)?.encode_gauge(amount),
        (Value::Times(times), _) => {
            let bounds = bounds.iter().copied().chain([f64::MAX]);
            let counts = times.counts.iter().copied().chain(std::iter::repeat(0));
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_family(labels)?.encode_histogram::<NoLabelSet>(times.sum_seconds, count, &buckets, None)
        }
    }
}

type Row<'a> = (Vec<(&'static str, &'a str)>, Value<'a>);

/// Returns all series of a metric.
fn series<'a>(name: &str, known: &'a Known) -> Vec<Row<'a>> {
    let Known { status, pods } = known;
    let gpu = &*status.gpu.uuid;
    let labels = |tenant: &'a Tenant| labels(gpu, tenant, pods.get(&tenant.id));
    let one = |value| vec![(vec![("gpu", gpu)], value)];
    let by = |key: &'static str, rows: &[(&'static str, u64)]| -> Vec<Row<'a>> {
        rows.iter().map(|(word, number)| (vec![("gpu", gpu), (key, *word)], Value::Number(*number))).collect()
    };
    // A counter has a series for each present tenant, and one for all that have left.
    let left = || vec![("gpu", gpu), ("tenant", DEPARTED)];
    let tenants = |value: &dyn Fn(&'a Tenant) -> Value<'a>, of_departed: Value<'a>| -> Vec<Row<'a>> {
        let rows = status.tenants.iter().map(|tenant| (labels(tenant), value(tenant)));
        rows.chain([(left(), of_departed)]).collect()
    };
    let (counters, departed) = (&status.counters, &status.departed_totals);
    match name {
        "build" => vec![(vec![("version", &status.version), ("driver", &status.driver)], Value::Info)],
        "start_time" => one(Value::Amount(status.started_unix_ms as f64 / 1e3)),
        "gpu_memory" => by("line", &status.ledger.lines.all()),
        "host_pool" => {
            let pool = &status.host_pool;
            by(
                "state",
                &[("used", pool.used_bytes), ("free", pool.free_bytes()), ("unprepared", pool.unprepared_bytes())],
            )
        }
        "tenants" => {
            let count = |state: &State| status.tenants.iter().filter(|tenant| tenant.state == *state).count() as u64;
            let rows =
                STATES.iter().map(|state| (vec![("gpu", gpu), ("state", state.word())], Value::Number(count(state))));
            rows.collect()
        }
        "newcomers" => one(Value::Number(status.newcomers.len() as u64)),
        "tenants_departed" => one(Value::Number(departed.tenants)),
        "tenant_memory" => {
            let of = |tenant: &'a Tenant| {
                let lines = [
                    ("resident", tenant.resident_bytes),
                    ("evicted", tenant.evicted_bytes),
                    ("unmanaged", tenant.unmanaged_bytes),
                    ("contexts", tenant.contexts_bytes),
                ];
                lines.map(|(state, bytes)| {
                    let mut labels = labels(tenant);
                    labels.push(("state", state));
                    (labels, Value::Number(bytes))
                })
            };
            status.tenants.iter().flat_map(of).collect()
        }
        "tenant_gpu" => tenants(&|tenant| Value::Amount(tenant.gpu_seconds), Value::Amount(departed.gpu_seconds)),
        "tenant_wait" => {
            tenants(&|tenant| Value::Times(&tenant.totals.wait_buckets), Value::Times(&departed.totals.wait_buckets))
        }
        "request" => {
            // Other tenants make no requests.
            let mut rows = tenants(
                &|tenant| Value::Times(&tenant.totals.request_buckets),
                Value::Times(&departed.totals.request_buckets),
            );
            rows.retain(
                |(_, value)| !matches!(value, Value::Times(times) if times.counts.iter().all(|count| *count == 0)),
            );
            rows
        }
        "slo_misses" => {
            tenants(&|tenant| Value::Number(tenant.totals.slo_misses), Value::Number(departed.totals.slo_misses))
        }
        "switches" => one(Value::Number(status.switches)),
        "switch" => {
            let phases = status.switch_buckets.all().into_iter();
            phases.map(|(phase, times)| (vec![("gpu", gpu), ("phase", phase)], Value::Times(times))).collect()
        }
        "copied" => by("direction", &[("in", counters.bytes_in), ("out", counters.bytes_out)]),
        "preemptions" => one(Value::Number(counters.preemptions)),
        "deschedules" => one(Value::Number(counters.deschedules)),
        "allocations_refused" => by(
            "reason",
            &[
                ("arena", counters.refused_arena),
                ("host_pool", counters.refused_host_pool),
                ("held", counters.refused_held),
            ],
        ),
        _ => Vec::new(),
    }
}

fn labels<'a>(gpu: &'a str, tenant: &'a Tenant, named: Option<&'a Pod>) -> Vec<(&'static str, &'a str)> {
    let mut labels = vec![("gpu", gpu), ("tenant", tenant.name.as_str()), ("class", tenant.class.as_str())];
    labels.extend(tenant.container.as_deref().map(|container| ("container_id", container)));
    labels.extend(tenant.pod.as_deref().map(|pod| ("pod_uid", pod)));
    if let Some(Pod { namespace, name, container }) = named {
        labels
            .extend([("namespace", namespace), ("pod", name), ("container", container)].map(|(k, v)| (k, v.as_str())));
    }
    labels
}

/// True if a reader with this `Accept` header wants OpenMetrics: the header names it, and prefers no other format.
pub(crate) fn is_openmetrics(accepted: &str) -> bool {
    let liking = |kind: &str| {
        let of_kind = accepted.split(',').filter_map(|range| {
            let mut words = range.split(';').map(str::trim);
            words.next().filter(|word| word.eq_ignore_ascii_case(kind))?;
            let quality = words.find_map(|word| word.strip_prefix("q=").or_else(|| word.strip_prefix("Q=")));
            Some(quality.map_or(1.0, |quality| quality.parse().unwrap_or(0.0)))
        });
        of_kind.fold(0.0, f64::max)
    };
    let openmetrics = liking("application/openmetrics-text");
    openmetrics > 0.0 && openmetrics >= liking("text/plain")
}

/// Converts to the text format before OpenMetrics, for readers that do not ask for that one. It describes a counter and an info by
/// their full names, and has no units and no end.
pub(crate) fn classic(text: &str) -> String {
    let line = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let described = (words.next(), words.next(), words.next(), words.next());
        let (Some("#"), Some(kind @ ("HELP" | "TYPE")), Some(name), Some(rest)) = described else {
            return if line.starts_with('#') { String::new() } else { format!("{line}\n") };
        };
        let metric = METRICS.iter().find(|metric| match metric.full_name() {
            full if full == name => true,
            full => full.strip_prefix(name).is_some_and(|rest| matches!(rest, "_total" | "_info")),
        });
        let name = metric.map_or_else(|| name.to_owned(), Metric::full_name);
        let rest = if kind == "TYPE" && rest == "info" { "gauge" } else { rest };
        format!("# {kind} {name} {rest}\n")
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests;
