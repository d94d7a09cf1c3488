"""What a person does on the page of dead letters, as scripts that a browser runs."""

from __future__ import annotations

DRIVER = """
  const rows = () => [...document.querySelectorAll(".row:not([hidden])")];
  const names = () => rows().map(row => row.querySelector("summary").children[1].textContent);
  const input = (id, value) => {
    at(id).value = value;
    at(id).dispatchEvent(new Event("input", {bubbles: true}));
    const found = names();
    at(id).value = "";
    at(id).dispatchEvent(new Event("input", {bubbles: true}));
    return found;
  };
  const printed = () => at("selected").hidden
    ? [] : [...document.querySelectorAll("#selected pre")].map(each => each.textContent);
  const told = {title: document.title, count: at("count").textContent, names: names()};
  told.verdict = input("verdict", "PERMANENT");
  told.group = input("group", "ConnectionError@app.ledger");
  told.text = input("text", "ACCOUNT CLOSED");
  told.plan = at("plan").textContent;
  told.acts = at("acts").textContent;
  told.became = at("became").textContent;
  told.unselected = printed();
  const [first, second] = rows().map(row => row.querySelector("summary"));
  first.focus();
  press(first, "ArrowDown");
  told.moved = document.activeElement === second && second.tabIndex === 0;
  const boxes = [...document.querySelectorAll("#groups input")];
  boxes[0].focus();
  press(boxes[0], "ArrowDown");
  told.groupMoved = document.activeElement === boxes[1];
  told.commands = {};
  const box = name => rows()[names().findIndex(each => each.includes(name))].querySelector("input");
  for (const name of SELECTED) {
    box(name).click();
    told.commands[name] = printed();
    box(name).click();
  }
  for (const each of boxes) {
    each.click();
    told.commands[each.ariaLabel] = printed();
    each.click();
  }
  at("these").click();
  told.commands.all = printed();
  at("none").click();
  told.none = printed();
  for (const row of rows()) {
    const details = row.querySelector("details");
    details.open = true;
    details.dispatchEvent(new Event("toggle")); // or it would come when the page is over
  }
  told.opened = at("rows").textContent;
  told.children = document.querySelectorAll("#rows :is(script, img, b), #groups :is(script, img, b)").length;
  at("these").click();
  tell({...told, ...looks("p, td, th, dt, dd, pre, span, h1, h2, h3, label, output")});
"""
"""What a person does on the page, and what comes of it; the arrows by events, the rest is the browser's own."""

INTRUDER = """<script>document.title = "taken"</script>
<p onclick="document.title = 'taken'" style="position: fixed" id="intruder">in</p>
</html>"""

PACE = """
  const told = {rows: document.querySelectorAll(".row").length};
  const timed = act => {
    const begun = performance.now();
    act();
    document.body.offsetHeight; // with its layout
    return performance.now() - begun;
  };
  told.ready = performance.now();
  told.text = Math.max(...["l", "le", "let", "nothing like it", ""].map(text => timed(() => {
    at("text").value = text;
    at("text").dispatchEvent(new Event("input", {bubbles: true}));
  })));
  told.all = timed(() => at("these").click());
  told.none = timed(() => at("none").click());
  const first = document.querySelector("summary");
  first.focus();
  told.arrow = timed(() => press(first, "ArrowDown"));
  at("these").click();
  document.querySelector(".row input").click();
  told.partly = at("selected").textContent;
  tell(told);
"""
