//! The forms of `forkyard status --metrics`.

use clap::ValueEnum;
use forkyard_web::metrics::Form;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MetricsForm {
    /// OpenMetrics
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// Prometheus' own older text format, as node_exporter's textfile collector reads it
    Prometheus,
}

impl From<MetricsForm> for Form {
    fn from(form: MetricsForm) -> Form {
        match form {
            MetricsForm::OpenMetrics => Form::OpenMetrics,
            MetricsForm::Prometheus => Form::Prometheus,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Use, look_at};
    use crate::{programs, status};
    use forkyard_protocol::control::Status;
    use forkyard_web::metrics;

    fn seen(mut status: Status) -> String {
        look_at(&mut status, &|pid| Use {
            memory: (pid == 77).then_some(3 << 20),
            cpu_ms: Some(1250),
        });
        metrics::metrics(&status, MetricsForm::OpenMetrics.into())
    }

    fn check(text: &str, lines: &[&str]) {
        assert!(text.ends_with("# EOF\n"));
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let names: std::collections::BTreeSet<&&str> = types.iter().collect();
        assert_eq!(types.len(), names.len());
    }

    #[test]
    fn applications_have_numbers_and_names_are_escaped() {
        let of = "{pool=\"s\\\"x\",application=\"/srv/\u{fffd}a\"";
        let expected = [
            format!("\nforkyard_applications_requests_total{of}}} 9\n"),
            format!("\nforkyard_applications_oldest_wait_seconds{of}}} 1.25\n"),
            format!("\nforkyard_applications_application_instances{of}}} 1\n"),
            format!("\nforkyard_instance_info{of},pid=\"77\",state=\"busy\",version=\"v\u{fffd}2\"}} 1\n"),
            format!("\nforkyard_instance_sessions{of},pid=\"77\"}} 1\n"),
            format!("\nforkyard_instance_processed_total{of},pid=\"77\"}} 8\n"),
            format!("\nforkyard_instance_memory_bytes{of},pid=\"77\"}} 3145728\n"),
            format!("\nforkyard_instance_cpu_seconds_total{of},pid=\"77\"}} 1.25\n"),
            format!("\nforkyard_instance_idle_seconds{of},pid=\"77\"}} 0.5\n"),
            "\nforkyard_applications_instances_max{pool=\"s\\\"x\"} 6\n".to_owned(),
            "\nforkyard_applications_start_age_seconds{pool=\"s\\\"x\",application=\"/srv/b\"} 2\n"
                .to_owned(),
            "\nforkyard_pool_failed_starts_total{pool=\"s\\\"x\"} 3\n".to_owned(),
        ];
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(&seen(status::tests::status()), &expected);
    }

    #[test]
    fn the_older_form_has_whole_names() {
        let mut status = status::tests::status();
        look_at(&mut status, &|_| Use::default());
        let text = metrics::metrics(&status, MetricsForm::Prometheus.into());
        assert!(
            text.contains(
                "# HELP forkyard_pool_requests_total Requests that workers took up.\n\
                 # TYPE forkyard_pool_requests_total counter\nforkyard_pool_requests_total{pool=\"s\\\"x\"} 9\n"
            ),
            "{text}"
        );
        assert!(text.contains("# TYPE forkyard_pool_up gauge\n") && !text.contains("EOF"));
    }

    #[test]
    fn processes_of_programs_have_numbers() {
        let text = seen(programs::tests::status());
        check(
            &text,
            &[
                "\nforkyard_program_up{pool=\"www\",generation=\"3\",place=\"1\"} 0\n",
                "\nforkyard_program_memory_bytes{pool=\"www\",generation=\"3\",place=\"0\"} 3145728\n",
                "\nforkyard_program_cpu_seconds_total{pool=\"www\",generation=\"3\",place=\"0\"} 1.25\n",
                "\nforkyard_program_restarts_total{pool=\"www\",generation=\"3\",place=\"0\"} 2\n",
                "\nforkyard_pool_failed_starts_total{pool=\"www\"} 4\n",
            ],
        );
        assert!(!text.contains("memory_bytes{pool=\"www\",generation=\"3\",place=\"1\"}"));
    }
}
