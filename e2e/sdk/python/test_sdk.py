"""The official Python package, as it is, against BASE_URL with API_KEY. MODELS maps a scenario's name to a model's id, and
a scenario without a model is left out. PROVIDER_URL is the mock provider that stands behind the models; POOR_API_KEY has
no money to spend, and is there only when a gateway stands between."""

import functools
import json
import os
import time
import unittest
import urllib.request
import uuid
from typing import Literal

import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from pydantic import BaseModel

MODELS = json.loads(os.environ["MODELS"])
POOR_API_KEY = os.environ.get("POOR_API_KEY", "")
GATEWAY = bool(POOR_API_KEY)
ANSWER = "every request is held before"


def connect(**options):
    return openai.OpenAI(**{"base_url": os.environ["BASE_URL"], "api_key": os.environ["API_KEY"], "max_retries": 0, "timeout": 120, **options})


def ask(name, **more):
    """A question of three words that nobody has asked before, and the word that is new."""
    nonce = str(uuid.uuid4())
    return nonce, {"model": MODELS[name], "messages": [{"role": "user", "content": f"one two {nonce}"}], **more}


def respond(name, **more):
    """The same for the Responses API."""
    return {"model": MODELS[name], "input": f"one two {uuid.uuid4()}", **more}


def requests(nonce):
    with urllib.request.urlopen(os.environ["PROVIDER_URL"] + "/log") as answer:
        return [request for request in json.load(answer) if nonce in request["body"]]


def each(*names):
    """Runs a test for each of the models that are there."""

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            for name in names:
                if name in MODELS:
                    with self.subTest(name):
                        test(self, name)

        return run

    return decorate


class Place(BaseModel):
    city: Literal["Ulm"]


TOOLS = [openai.pydantic_function_tool(Place, name=name) for name in ("today", "tomorrow")]
CALLED = [("today", '{"city":"Ulm"}'), ("tomorrow", '{"city":"Ulm"}')]


class Scenarios(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = connect()
        cls.addClassCleanup(cls.client.close)

    def create(self, name, **more):
        return self.client.chat.completions.create(**ask(name, **more)[1])

    def test_models_are_listed_and_found_with_a_slash_in_the_id(self):
        models = list(self.client.models.list())
        for model in models:
            self.assertEqual("model", model.object)
            self.assertTrue(model.created and model.owned_by)
        self.assertIn(MODELS["listed"], [model.id for model in models])
        self.assertEqual(MODELS["listed"], self.client.models.retrieve(MODELS["listed"]).id)

    @each("chat", "sim_chat")
    def test_chat(self, name):
        completion = self.create(name)
        self.assertEqual("chat.completion", completion.object)
        self.assertEqual("assistant", completion.choices[0].message.role)
        self.assertEqual("stop", completion.choices[0].finish_reason)
        self.assertTrue(completion.choices[0].message.content)
        usage = completion.usage
        self.assertTrue(usage.prompt_tokens > 0 and usage.completion_tokens > 0)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        if name == "chat":
            self.assertEqual((ANSWER, 3, 5), (completion.choices[0].message.content, usage.prompt_tokens, usage.completion_tokens))

    @each("chat", "sim_chat", "odd", "plain", "unasked", "inline")
    def test_a_stream_without_usage_shows_none(self, name):
        chunks = list(self.create(name, stream=True))
        for chunk in chunks:
            self.assertEqual(1, len(chunk.choices), chunk)
            self.assertIsNone(chunk.usage)
            self.assertEqual((chunks[0].id, chunks[0].model, chunks[0].created), (chunk.id, chunk.model, chunk.created))
        self.assertEqual("assistant", chunks[0].choices[0].delta.role)
        self.assertEqual("stop", chunks[-1].choices[0].finish_reason)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        self.assertTrue(text)
        if name != "sim_chat":
            self.assertEqual(ANSWER, text)

    @each("chat", "sim_chat", "odd")
    def test_a_stream_with_usage_ends_with_it(self, name):
        *chunks, last = self.create(name, stream=True, stream_options={"include_usage": True})
        self.assertEqual([], last.choices)
        self.assertEqual(last.usage.total_tokens, last.usage.prompt_tokens + last.usage.completion_tokens)
        self.assertGreater(last.usage.completion_tokens, 0)
        for chunk in chunks:
            self.assertEqual(1, len(chunk.choices))
            self.assertIsNone(chunk.usage)
            self.assertIn("usage", chunk.model_fields_set)
        if name != "sim_chat":
            self.assertEqual(5, last.usage.completion_tokens)

    @each("chat", "sim_chat", "odd")
    def test_the_stream_helpers_add_up(self, name):
        heard = ""
        with self.client.chat.completions.stream(**ask(name, stream_options={"include_usage": True})[1]) as stream:
            for event in stream:
                if event.type == "content.delta":
                    heard += event.delta
            completion = stream.get_final_completion()
        state = ChatCompletionStreamState()
        for chunk in self.create(name, stream=True):
            state.handle_chunk(chunk)
        self.assertTrue(heard)
        self.assertEqual(heard, completion.choices[0].message.content)
        self.assertEqual("stop", completion.choices[0].finish_reason)
        self.assertGreater(completion.usage.completion_tokens, 0)
        self.assertTrue(state.get_final_completion().choices[0].message.content)
        if name != "sim_chat":
            self.assertEqual(ANSWER, heard)

    @each("tools")
    def test_tools_are_called_in_parallel(self, name):
        def named(calls):
            return [(call.function.name, call.function.arguments) for call in calls]

        whole = self.create(name, tools=TOOLS).choices[0]
        self.assertEqual(("tool_calls", None), (whole.finish_reason, whole.message.content))
        self.assertEqual(CALLED, named(whole.message.tool_calls))
        self.assertEqual(2, len({call.id for call in whole.message.tool_calls}))

        by_index = {}
        for chunk in self.create(name, tools=TOOLS, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                if call.index in by_index:
                    self.assertIsNone(call.id)
                    by_index[call.index].function.arguments += call.function.arguments
                else:
                    self.assertTrue(call.id and call.type == "function" and call.function.arguments == "", call)
                    by_index[call.index] = call
        self.assertEqual(CALLED, named(by_index[i] for i in range(2)))

        with self.client.chat.completions.stream(**ask(name, tools=TOOLS)[1]) as stream:
            done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
            added = stream.get_final_completion().choices[0].message.tool_calls
        self.assertEqual(CALLED, named(added))
        self.assertEqual(["today", "tomorrow"], [event.name for event in done])
        self.assertEqual([Place(city="Ulm")] * 2, [call.function.parsed_arguments for call in added])

    @each("structured", "sim_chat")
    def test_structured_output_is_parsed(self, name):
        completion = self.client.chat.completions.parse(**ask(name, response_format=Place)[1])
        self.assertEqual(Place(city="Ulm"), completion.choices[0].message.parsed)
        with self.client.chat.completions.stream(**ask(name, response_format=Place)[1]) as stream:
            self.assertEqual(Place(city="Ulm"), stream.get_final_completion().choices[0].message.parsed)

    @each("reasoning")
    def test_reasoning_is_beside_the_answer(self, name):
        completion = self.create(name)
        self.assertEqual("every request", completion.choices[0].message.reasoning_content)
        self.assertEqual(2, completion.usage.completion_tokens_details.reasoning_tokens)
        chunks = self.create(name, stream=True)
        self.assertEqual("every request", "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks))

    @each("chat", "sim_chat")
    def test_a_response(self, name):
        response = self.client.responses.create(**respond(name, instructions="Be brief."))
        self.assertEqual(("response", "completed"), (response.object, response.status))
        self.assertTrue(response.output_text)
        usage = response.usage
        self.assertTrue(usage.input_tokens > 0 and usage.output_tokens > 0)
        self.assertEqual(usage.total_tokens, usage.input_tokens + usage.output_tokens)
        if name == "chat":
            self.assertEqual(ANSWER, response.output_text)

    @each("chat", "sim_chat", "odd")
    def test_the_response_stream_helper_adds_up(self, name):
        with self.client.responses.stream(**respond(name)) as stream:
            events = list(stream)
            response = stream.get_final_response()
        heard = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertTrue(heard)
        self.assertEqual(heard, response.output_text)
        self.assertEqual(list(range(len(events))), [event.sequence_number for event in events])
        self.assertEqual(["response.created", "response.in_progress"], [event.type for event in events[:2]])
        self.assertEqual("response.completed", events[-1].type)
        self.assertEqual({response.id}, {event.response.id for event in events if hasattr(event, "response")})
        self.assertGreater(response.usage.output_tokens, 0)
        if name != "sim_chat":
            self.assertEqual(ANSWER, heard)

    @each("tools")
    def test_a_response_calls_functions_and_goes_on_with_what_they_say(self, name):
        def called(response):
            return [item for item in response.output if item.type == "function_call"]

        body = respond(name, tools=[{"type": "function", "name": n, "strict": True, "parameters": Place.model_json_schema() | {"additionalProperties": False}} for n in ("today", "tomorrow")])
        whole = self.client.responses.create(**body)
        self.assertEqual(CALLED, [(call.name, call.arguments) for call in called(whole)])
        with self.client.responses.stream(**body) as stream:
            done = [event.arguments for event in stream if event.type == "response.function_call_arguments.done"]
            response = stream.get_final_response()
        self.assertEqual([arguments for _, arguments in CALLED], done)
        self.assertEqual(CALLED, [(call.name, call.arguments) for call in called(response)])
        # What the helper parsed is not of the wire: the items go back as they came.
        items = [item.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for item in whole.output]
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in called(whole)]
        following = self.client.responses.create(**{**body, "input": [{"role": "user", "content": body["input"]}, *items, *results]})
        self.assertTrue(following.output_text)

    @each("structured", "sim_chat")
    def test_a_response_of_a_given_form_is_parsed(self, name):
        self.assertEqual(Place(city="Ulm"), self.client.responses.parse(**respond(name), text_format=Place).output_parsed)
        with self.client.responses.stream(**respond(name), text_format=Place) as stream:
            self.assertEqual(Place(city="Ulm"), stream.get_final_response().output_parsed)

    @each("broken", "dies")
    def test_a_response_that_breaks_off_is_an_error(self, name):
        with self.assertRaises(Exception):
            with self.client.responses.stream(**respond(name)) as stream:
                stream.until_done()
                stream.get_final_response()

    @each("embedding", "sim_embedding", "numbers", "packed")
    def test_embeddings_are_the_same_in_both_encodings(self, name):
        question = {"model": MODELS[name], "input": ["one two", "three"]}
        packed = self.client.embeddings.create(**question)
        floats = self.client.embeddings.create(**question, encoding_format="float")
        self.assertEqual([0, 1], [one.index for one in packed.data])
        self.assertGreater(packed.usage.prompt_tokens, 0)
        for a, b in zip(packed.data, floats.data, strict=True):
            self.assertTrue(a.embedding)
            self.assertEqual(len(a.embedding), len(b.embedding))
            for x, y in zip(a.embedding, b.embedding):
                self.assertAlmostEqual(x, y, places=6)

    def refused(self, kind, name="chat", client=None, **more):
        with self.assertRaises(kind) as caught:
            (client or self.client).chat.completions.create(**ask(name, **more)[1])
        self.assertTrue(caught.exception.request_id)
        return caught.exception

    def test_refusals_are_the_right_errors(self):
        with connect(api_key="sk_sovereign_wrong") as stranger:
            self.assertEqual("invalid_api_key", self.refused(openai.AuthenticationError, client=stranger).code)
        self.assertEqual("model_not_found", self.refused(openai.NotFoundError, model="nothing").code)
        parameter = self.refused(openai.BadRequestError, max_completion_tokens=-1)
        self.assertEqual("invalid_request_error", parameter.type)
        self.assertIn("max_completion_tokens", parameter.message)
        limited = self.refused(openai.RateLimitError, "limited")
        self.assertEqual(("rate_limit_error", "7"), (limited.type, limited.response.headers["retry-after"]))
        self.refused(openai.RateLimitError, "limited", stream=True)
        if GATEWAY:
            with connect(api_key=POOR_API_KEY) as poor:
                error = self.refused(openai.APIStatusError, client=poor)
            self.assertEqual((402, "insufficient_balance", "insufficient_quota"), (error.status_code, error.code, error.type))

    @each("down", "locked")
    def test_a_failure_of_the_provider_is_tried_three_times_by_default_and_a_refusal_once(self, name):
        nonce, question = ask(name)
        with connect(max_retries=openai.DEFAULT_MAX_RETRIES) as client, self.assertRaises(openai.APIStatusError) as caught:
            client.chat.completions.create(**question)
        error = caught.exception
        tries = 3 if name == "down" else 1
        self.assertEqual(str(0 if GATEWAY else tries - 1), error.request.headers["x-stainless-retry-count"])
        self.assertEqual(tries, len(requests(nonce)))
        if GATEWAY:
            self.assertEqual((502, "upstream_error"), (error.status_code, error.type))
            self.assertIn(error.request_id, error.message)

    @each("flaky")
    def test_retry_after_is_obeyed_and_the_answer_comes_in_the_end(self, name):
        nonce, question = ask(name)
        began = time.monotonic()
        with connect(max_retries=5) as client:
            answer = client.chat.completions.with_raw_response.create(**question)
        self.assertTrue(answer.parse().choices[0].message.content)
        self.assertGreater(answer.retries_taken, 0)
        self.assertGreater(time.monotonic() - began, answer.retries_taken * 0.99)
        self.assertEqual([429, 429, 429, 200], [request["status"] for request in requests(nonce)])

    @each("final")
    def test_x_should_retry_is_obeyed(self, name):
        with connect(max_retries=2) as client:
            error = self.refused(openai.InternalServerError, name, client)
        self.assertEqual("0", error.request.headers["x-stainless-retry-count"])

    @each("broken", "dies", "ends")
    def test_an_error_in_the_middle_of_a_stream_is_raised(self, name):
        heard = ""
        with self.assertRaises(openai.APIError) as caught:
            for chunk in self.create(name, stream=True):
                heard += chunk.choices[0].delta.content or ""
        self.assertTrue(caught.exception.type and caught.exception.message, repr(caught.exception))
        self.assertEqual("every request ", heard)

    def test_request_ids_are_seen(self):
        ids = [
            self.client.models.list()._request_id,
            self.create("chat")._request_id,
            self.client.embeddings.create(model=MODELS["embedding"], input="one")._request_id,
        ]
        stream = self.client.chat.completions.with_raw_response.create(**ask("chat", stream=True)[1])
        list(stream.parse())
        ids.append(stream.request_id)
        for one in ids:
            self.assertTrue((one or "").startswith("req_" if GATEWAY else "provider-"), ids)
        self.assertEqual(len(ids), len(set(ids)))

    @each("slow")
    def test_an_aborted_stream_is_cancelled_at_the_provider(self, name):
        nonce, question = ask(name, stream=True)
        with self.client.chat.completions.create(**question) as stream:
            heard = 0
            for chunk in stream:
                heard += bool(chunk.choices[0].delta.content)
                if heard == 3:
                    break
        left = time.monotonic()
        while not (request := requests(nonce)[0])["cancelled_at"]:
            self.assertLess(time.monotonic() - left, 120, f"the provider goes on: {request}")
            time.sleep(0.02)
        self.assertTrue(not request["finished"] and 2 <= request["chunks_sent"] <= 103, request)


if __name__ == "__main__":
    unittest.main()
