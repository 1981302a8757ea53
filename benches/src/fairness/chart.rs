//! Plots of the experiments: bars by policy and tenant, and cumulated latencies.

use super::report::PolicyRun;
pub(super) use crate::plot::Chart;
use crate::plot::Group;
use weldfs_session::latency::Snapshot;

/// Each tenant's part of the device time by setup, with Jain's index; a mark where its share is.
pub(super) fn shares(title: &str, rows: &[PolicyRun]) -> Chart {
    let several = rows.iter().any(|r| r.experiment != rows[0].experiment);
    let group = |r: &PolicyRun| {
        let all: f64 = r.run.tenants.iter().map(|t| f64::from(t.weight)).sum();
        let variant = r.experiment.split_once(", ").map_or("", |(_, v)| v);
        Group {
            name: if several { format!("{}, {variant}", r.policy) } else { r.policy.to_string() },
            about: format!("Jain {:.3}", r.run.jain()),
            values: (0..r.run.tenants.len()).map(|at| r.run.share(at) * 100.0).collect(),
            due: r.run.tenants.iter().map(|t| f64::from(t.weight) / all * 100.0).collect(),
        }
    };
    let series = rows.first().map_or(Vec::new(), |r| r.run.tenants.iter().map(|t| t.name.clone()).collect());
    Chart::Bars {
        title: title.to_owned(),
        y: "% of the device time".into(),
        series,
        groups: rows.iter().map(group).collect(),
    }
}

/// The same where tenants of the setups differ in weight only, and so in name.
pub(super) fn by_weight(title: &str, rows: &[PolicyRun]) -> Chart {
    let mut chart = shares(title, rows);
    if let Chart::Bars { series, .. } = &mut chart {
        // "name-weight" -> "name".
        series.iter_mut().for_each(|s| s.truncate(s.rfind('-').unwrap_or(s.len())));
    }
    chart
}

/// What part of the values is at most so much, in microseconds.
pub(super) fn cumulated(latency: &Snapshot) -> Vec<(f64, f64)> {
    let (all, mut seen) = (latency.count().max(1) as f64, 0);
    let points = latency.filled().map(|(ns, n)| {
        seen += n;
        (ns as f64 / 1e3, seen as f64 / all)
    });
    points.collect()
}
