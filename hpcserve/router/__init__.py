"""The router: OpenAI's HTTP in, engines' HTTP out, around `routing.choose`. A process: `python -m hpcserve.router`.

In: a job directory (plan, service, keys, endpoints) and an address to listen on. Out: answers; `router.json` and
`router.state.json`. May touch: sockets, the job directory, standard output.
"""
