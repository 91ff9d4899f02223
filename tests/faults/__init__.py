"""The fault suite: what breaks around the system and inside it, and what must hold afterwards.

`make faults` runs every case, `make faults CASE=12 SEED=7 TRIALS=300` one of them, `CASE=1-17,19` several. The numbers are those of the
list in docs/reliability.md. One bed (bed.py) is started for all: two gateways, two runners, ingestion, two retrieval, a durable
PostgreSQL, a RabbitMQ, a scripted model, a ledger of side effects, an embeddings server.

How to write a case. Put an async function into a module of cases/ (and a new module into cases/__init__.py):

    @case(3, "SIGKILL a runner in the middle of the model's stream", trials=3, quick=True)
    async def mid_stream(bed: Bed, rng: Random, trials: int) -> Tally:
        tally = Tally()
        for _ in range(trials):
            async with conversation(bed.clients[0], tally) as talk:          # a session, followed over both gateways with resume
                wish = Wish(text="the whole answer", gate="middle", chunk_chars=4)   # what the model does with this message
                run_id = await talk.say(wish)
                await bed.model.someone_at("middle")
                await bed.kill(await bed.holder_of(run_id))
                await talk.expect(run_id, wish)                               # ends in 60 s, completed, with the text wished for
        return tally

* The Tally counts attempted, acknowledged, ok, lost, duplicated, unexpected, recovered and the seconds from kills to resumption.
  Conversations fill it in; what else was seen goes in by `tally.surprise("...")` (unexpected, fails the case) or `tally.note(...)`.
  `tally.require(condition, "...")` is a surprise where the condition is false.
* The model does what the message says (model.Wish), so that nothing has to be scripted for load. `load.background_load` keeps many
  sessions of several tenants busy meanwhile.
* `bed.restart("runner-0", CHATMIND_FAILPOINT="x=kill")` starts a service with other environment. Names: gateway-0, gateway-1, runner-0,
  runner-1, ingestion-0, retrieval-0, retrieval-1. `bed.proxied("runner-0", "rabbitmq")` puts a Proxy (proxy.py) between the two.
  Nothing has to be put right again: after a case the bed is healed, then the invariants (invariants.py) are checked.
* Randomness comes from `rng` only. What can't be tried on this machine raises `NotHere("reason")`.
* For a fault that lasts: `await lasts(seconds)`; for everything else wait for a condition (tests.support.waiting.eventually).
"""
