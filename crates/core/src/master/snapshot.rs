//! Reads a snapshot. Rows are untrusted: each was written by its worker.

use super::children::{Children, WorkerProgress};
use super::event::{GenerationId, Row, WorkerId};
use super::leave::Going;
use forkyard_base::tick::Tick;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct View {
    /// Workers that wait for work and were not told to exit.
    pub idle: Vec<Idle>,
    /// Workers that are not up and were not told to exit.
    pub starting: u32,
    /// Workers that are up, have work and were not told to exit.
    pub busy: u32,
    /// Busy workers that take more work.
    pub roomy: u32,
    /// Surplus workers that claim to be idle.
    pub lingering: Vec<WorkerId>,
    /// Requests that may expire, except of workers that were sent a signal.
    pub running: Vec<TimedRequest>,
    /// Since when workers have work that may become a running request.
    pub about_to_run: Vec<Tick>,
    /// Waiting connections, if known.
    pub queued: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimedRequest {
    pub worker: WorkerId,
    pub since: Tick,
    pub executing: bool,
    /// From when its time counts for the slow log; `None`: it was logged.
    pub unlogged: Option<Tick>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle {
    pub worker: WorkerId,
    pub since: Tick,
    /// It holds idle kept connections.
    pub keeps: bool,
    /// It let work wait and is ignored.
    pub stalled: bool,
}

impl View {
    /// Reads a generation's rows; a worker without a row is busy if it is up.
    pub(super) fn read(
        children: &mut Children,
        generation: GenerationId,
        rows: &[Row],
        queued: Option<u32>,
        now: Tick,
    ) -> View {
        let rows: BTreeMap<WorkerId, &Row> = rows.iter().map(|row| (row.worker, row)).collect();
        let mut view = View {
            queued,
            ..View::default()
        };
        for worker in children.of(generation) {
            view.count(children, worker, rows.get(&worker).copied(), now);
        }
        view
    }

    fn count(&mut self, children: &mut Children, id: WorkerId, row: Option<&Row>, now: Tick) {
        let idle = row.is_some_and(|row| row.idle);
        let running = row.is_some_and(|row| row.running && !row.idle);
        let since = row.and_then(|row| children.change(id, |worker| worker.see(idle, row.since, now)));
        let Some(worker) = children.worker(id) else { return };
        let up = worker.progress == WorkerProgress::Up || running;
        match worker.going {
            Going::Kept if !up => self.starting += 1,
            Going::Kept if idle => self.idle.push(Idle {
                worker: id,
                since: since.unwrap_or(now),
                keeps: row.is_some_and(|row| row.kept > 0),
                stalled: worker.stalled.is_some() && worker.stalled == row.map(|row| row.since),
            }),
            Going::Surplus if idle => self.lingering.push(id),
            Going::Kept => {
                self.busy += 1;
                let has_room = row.is_some_and(|row| row.has_room && worker.stalled != Some(row.since));
                self.roomy += u32::from(has_room);
            }
            Going::Surplus | Going::Leaving => {}
            Going::Terminated(_) | Going::Killed(_) => return,
        }
        if running {
            let since = since.unwrap_or(now);
            self.running.push(TimedRequest {
                worker: id,
                since,
                executing: row.is_some_and(|row| row.executing),
                unlogged: worker.unlogged_since(since),
            });
        } else if up && !idle {
            self.about_to_run.push(since.unwrap_or(now));
        }
    }

    pub(super) fn ready(&self) -> u32 {
        let idle = self.idle.iter().filter(|idle| !idle.stalled).count();
        u32::try_from(idle).unwrap_or(u32::MAX).saturating_add(self.roomy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::event::SlotIndex;

    const GENERATION: GenerationId = GenerationId(0);

    fn row(worker: WorkerId, idle: bool, running: bool) -> Row {
        Row {
            worker,
            idle,
            has_room: false,
            since: Tick::ZERO,
            running,
            executing: running,
            kept: 0,
            memory: 0,
        }
    }

    #[test]
    fn a_worker_with_room_is_ready_and_busy() {
        let mut children = Children::default();
        let ids: Vec<WorkerId> = (0..3)
            .map(|slot| children.add(GENERATION, SlotIndex(slot), 0, Tick::ZERO))
            .collect();
        for id in &ids {
            children.change(*id, |worker| worker.progress = WorkerProgress::Up);
        }
        children.change(ids[2], |worker| worker.going = Going::Leaving);
        let rows = ids.iter().map(|id| Row {
            has_room: *id != ids[1],
            ..row(*id, false, true)
        });
        let rows: Vec<Row> = rows.collect();
        let view = View::read(&mut children, GENERATION, &rows, None, Tick::ZERO);
        assert_eq!((view.ready(), view.busy, view.idle.len()), (1, 2, 0));
    }

    #[test]
    fn each_worker_is_counted_once_whatever_the_rows_say() {
        let mut children = Children::default();
        let ids: Vec<WorkerId> = (0..4)
            .map(|slot| children.add(GENERATION, SlotIndex(slot), 0, Tick::ZERO))
            .collect();
        for id in &ids[..3] {
            children.change(*id, |worker| worker.progress = WorkerProgress::Up);
        }
        children.change(ids[2], |worker| worker.going = Going::Surplus);
        let rows = [
            row(ids[0], true, true),
            row(ids[0], true, false),
            row(ids[1], false, true),
            row(ids[2], true, false),
            row(WorkerId(99), true, false),
        ];
        let view = View::read(&mut children, GENERATION, &rows, None, Tick::ZERO);
        assert_eq!((view.ready(), view.busy, view.starting), (1, 1, 1));
        assert_eq!(view.lingering, [ids[2]]);
        let running = TimedRequest {
            worker: ids[1],
            since: Tick::ZERO,
            executing: true,
            unlogged: Some(Tick::ZERO),
        };
        assert_eq!(view.running, [running]);
        assert_eq!(view.about_to_run, []);
    }
}
