//! How much CPU time a request used.

use super::service::Service;
use crate::sys::clock;
use crate::tick::Tick;

/// Requests shorter than this are not measured: their CPU time is below what php-fpm's clock tick could show.
const CPU_THRESHOLD_MICROS: u64 = 1_000;

impl Service {
    /// Accounts for the request that was being served.
    pub(super) fn account(&mut self, now: Tick) {
        let took = now.since(self.taken);
        self.took = [took, self.took[0]];
        let micros = took.as_micros() as u64;
        let (mut centipercent, program) = (0, std::mem::take(&mut self.program_micros));
        if micros >= CPU_THRESHOLD_MICROS {
            let total = clock::process_cpu_micros();
            let used = total
                .saturating_sub(self.cpu_micros)
                .saturating_add(program)
                .min(micros.saturating_mul(64));
            centipercent = used * 10_000 / micros;
            self.cpu_micros = total;
        } else {
            // Not measured: what it may have used at most is left out of the next measurement.
            self.cpu_micros += micros;
        }
        self.slot_writer().finished(micros, centipercent);
    }
}
