// A button on every listing that copies its code: of interactive sessions the statements only.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("div.highlight")) {
    const listing = box.querySelector("pre");
    if (!listing) continue;
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the code");
    button.addEventListener("click", async () => {
      const lines = listing.textContent.replace(/\n+$/, "").split("\n");
      const prompt = /^(>>> |\.\.\. |\$ )/;
      const typed = lines.some((line) => prompt.test(line))
        ? lines.filter((line) => prompt.test(line) || /^(>>>|\.\.\.)$/.test(line)).map((line) => line.replace(/^(>>>|\.\.\.|\$) ?/, ""))
        : lines;
      try {
        await navigator.clipboard.writeText(typed.join("\n"));
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    box.append(button);
  }
});
