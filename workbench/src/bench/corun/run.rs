//! The measurements.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_contract::class::Class;
use baton_harness::Error;
use baton_harness::place::Ground;

use super::report::{BatchAlone, Cell, Ratios, Report, ServedAlone, Times};
use super::{Options, Program, Sizes, Way};
use crate::asked::{Answer, Asked};
use crate::known::Known;
use crate::working::Working;

/// Uncounted requests at first, one after the other: they measure the time of one.
const PACE: u32 = 11;
/// Duration of batch work's measurement alone: for each measured request, and at most.
const ALONE_EACH: Duration = Duration::from_millis(20);
const ALONE: Duration = Duration::from_secs(2);

/// One run with all its measurements.
pub(super) struct Run<'a> {
    ground: &'a Ground<'a>,
    options: &'a Options,
    sizes: &'a Sizes,
    say: &'a dyn Fn(&str),
    known: Known,
    report: Report,
}

impl<'a> Run<'a> {
    pub(super) fn new(ground: &'a Ground<'a>, options: &'a Options, sizes: &'a Sizes, say: &'a dyn Fn(&str)) -> Self {
        let report = Report {
            outputs_match: true,
            driver: ground.driver.device.clone(),
            model: if ground.simulated { ground.model() } else { BTreeMap::new() },
            arena_bytes: sizes.arena,
            requests: options.requests,
            load: options.load,
            seed: options.seed,
            served: Vec::new(),
            batch: Vec::new(),
            cells: Vec::new(),
        };
        Self { ground, options, sizes, say, known: Known::default(), report }
    }

    /// Returns the results.
    pub(super) fn report(mut self) -> Report {
        self.report.compare();
        self.report
    }

    /// Measures a program alone and bare.
    pub(super) fn alone(&mut self, program: &Program) -> Result<(), Error> {
        let (name, stop) = (program.name.to_owned(), self.ground.stop);
        let place = self.ground.place()?;
        let mut command = place.bare(program.example, program.options)?;
        if program.class == Class::Latency {
            let mut server = Asked::start(program.name, &mut command, stop)?;
            let first = self.first(&mut server)?;
            if self.report.pace(&name).is_none() {
                let pace_ms = Times::of(&first).p50_ms;
                self.report.served.push(ServedAlone { name: name.clone(), pace_ms, alone: Vec::new() });
            }
            let (times, same) = self.requests(program, first, server)?;
            (self.say)(&format!("{name} alone: {times}\n"));
            self.report.outputs_match &= same;
            let served = self.report.served.iter_mut().find(|served| served.name == name);
            served.into_iter().for_each(|served| served.alone.push(times.clone()));
            return Ok(());
        }
        let mut work = Working::start(program.name, &mut command, stop)?;
        let window = ALONE.min(ALONE_EACH * self.options.requests);
        let (rate, ()) = work.rate(stop, || {
            std::thread::sleep(window);
            stop.check()
        })?;
        self.report.outputs_match &= self.known.agrees(program.name, work.computed());
        (self.say)(&format!("{name} alone: {rate:.1} a second\n"));
        match self.report.batch.iter_mut().find(|batch| batch.name == name) {
            Some(batch) => batch.alone.push(rate),
            None => self.report.batch.push(BatchAlone { name, alone: vec![rate] }),
        }
        Ok(())
    }

    /// Measures a server and batch work on the same GPU.
    pub(super) fn together(&mut self, way: &Way, server: &Program, batch: &Program) -> Result<(), Error> {
        let stop = self.ground.stop;
        let place = self.ground.place()?;
        let sizes = [self.sizes.arena, self.sizes.pool];
        let coordinator = way.serve.map(|options| place.coordinator(sizes, options)).transpose()?;
        let command = |program: &Program| match &coordinator {
            Some(one) => place.tenant(one, program.name, program.class, program.example, program.options),
            None => place.bare(program.example, program.options),
        };
        let mut served = Asked::start(server.name, &mut command(server)?, stop)?;
        let mut work = Working::start(batch.name, &mut command(batch)?, stop)?;
        let first = self.first(&mut served)?;
        let (rate, (times, same_answers)) = work.rate(stop, || self.requests(server, first, served))?;
        let same_work = self.known.agrees(batch.name, work.computed());
        (self.say)(&format!("{} beside {}, {}: {times}; {rate:.1} a second\n", server.name, batch.name, way.name));
        self.report.cells.push(Cell {
            served: server.name.to_owned(),
            batch: batch.name.to_owned(),
            way: way.name.to_owned(),
            options: way.serve.map(|options| options.iter().map(|&option| option.to_owned()).collect()),
            times,
            batch_per_second: rate,
            ratios: Ratios::default(),
            preemptions: coordinator.map(|one| one.status()).transpose()?.map(|status| status.counters.preemptions),
            outputs_match: same_answers && same_work,
        });
        Ok(())
    }

    /// Makes requests one after the other.
    fn first(&self, server: &mut Asked) -> Result<Vec<Answer>, Error> {
        (0..PACE).map(|_| server.ask(self.ground.stop)).collect()
    }

    /// Makes the counted requests and ends the server. True if all its answers are the same as at first.
    fn requests(&mut self, program: &Program, first: Vec<Answer>, mut server: Asked) -> Result<(Times, bool), Error> {
        let Options { requests, load, seed, .. } = *self.options;
        let mean = self.report.pace(program.name).unwrap_or_default().div_f64(load);
        let counted = server.ask_many(requests, mean, seed, self.ground.stop, || ())?;
        server.end(self.ground.stop)?;
        let times = Times::of(&counted);
        let digests = first.into_iter().chain(counted).map(|answer| answer.digest);
        Ok((times, self.known.agrees(program.name, (0..).zip(digests))))
    }
}
